// SPDX-License-Identifier: Apache-2.0
// What the layers of other families have beyond Llama's.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hone/core/error.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/train/nn/llama.h"
#include "tests/model_io/family_models.h"
#include "tests/support/error_of.h"
#include "tests/support/tensors.h"

namespace hone::nn {
namespace {

using model_io::Architecture;
using model_io::QkNorm;
using test::relative_error;
using testing::HasSubstr;
using torch::Tensor;

Tensor ids_below_48(Index batch, Index positions, std::int64_t salt = 0) {
  const Tensor i = at::arange(batch * positions, at::kLong);
  return ((7 * i + i * i + salt) % 48).view({batch, positions});
}

// A model away from its symmetric start: norms and biases, too.
Llama stirred(const Architecture& architecture) {
  Llama model(architecture, 5);
  const torch::NoGradGuard no_grad;
  double salt = 0;
  for (Tensor& parameter : model->parameters()) {
    parameter.add_(at::sin(at::arange(parameter.numel()) + salt++).view_as(parameter) * 0.2);
  }
  return model;
}

// The whole model again, as docs/families.md has it, in double precision: every tensor by its name.
class Oracle {
 public:
  explicit Oracle(const Llama& model) : a_(model->architecture()) {
    for (const NamedTensor& tensor : model->model_tensors()) {
      leaves_[tensor.name] = tensor.value.to(at::kDouble).requires_grad_();
    }
  }

  Tensor loss_sum(const Tensor& ids, const Tensor& targets) {
    Tensor x = at::embedding(get("model.embed_tokens"), ids) * a_.embedding_scale;
    for (Index i = 0; i < a_.layers; ++i) {
      x = x + attention(i, x);
      x = x + mlp(i, x);
    }
    x = norm(x, get("model.norm"), a_.hidden_size);
    const Tensor head = get(a_.tied_embeddings ? "model.embed_tokens" : "lm_head");
    return composed::linear_cross_entropy(x.flatten(0, 1), head, targets.reshape({-1}));
  }
  Tensor grad(const std::string& name) const { return leaves_.at(name).grad(); }

 private:
  Tensor get(const std::string& name, const char* part = ".weight") const {
    const auto found = leaves_.find(name + part);
    return found == leaves_.end() ? Tensor() : found->second;
  }
  // RMSNorm of every `size` elements.
  Tensor norm(const Tensor& x, const Tensor& weight, Index size) const {
    if (!weight.defined()) return x;
    const Tensor rows = x.reshape({-1, size});
    const Tensor mean = rows.pow(2).mean(-1, /*keepdim=*/true);
    return (rows * at::rsqrt(mean + a_.norm_eps) * (weight + a_.norm_offset)).view_as(x);
  }
  Tensor project(const Tensor& x, const std::string& name) const {
    return at::linear(x, get(name), get(name, ".bias"));
  }
  Tensor turn(const Tensor& x, Index layer) const {  // [batch, heads, positions, head_dim]
    const double theta = a_.rope_of(layer).theta;
    const Tensor dims = at::arange(0, a_.head_dim, 2, at::kDouble) / a_.head_dim;
    const Tensor angles = at::arange(x.size(2), at::kDouble).unsqueeze(1) *
                          at::pow(at::full({}, theta, at::kDouble), -dims);
    const auto halves = x.chunk(2, -1);
    return at::cat({halves[0] * angles.cos() - halves[1] * angles.sin(),
                    halves[1] * angles.cos() + halves[0] * angles.sin()},
                   -1);
  }
  Tensor attention(Index layer, const Tensor& stream) const {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    const Tensor x = norm(stream, get(name + "input_layernorm"), a_.hidden_size);
    const Index batch = x.size(0), positions = x.size(1);
    const auto heads_of = [&](const std::string& part, Index count) {
      Tensor y = project(x, name + "self_attn." + part + "_proj");
      const Tensor weight = get(name + "self_attn." + part + "_norm");
      y = norm(y, weight, weight.defined() ? weight.numel() : 1);
      return y.view({batch, positions, count, a_.head_dim}).transpose(1, 2);
    };
    const Index repeats = a_.heads / a_.kv_heads;
    const Tensor q = turn(heads_of("q", a_.heads), layer);
    const Tensor k = turn(heads_of("k", a_.kv_heads), layer).repeat_interleave(repeats, 1);
    const Tensor v = heads_of("v", a_.kv_heads).repeat_interleave(repeats, 1);
    const Tensor place = at::arange(positions);
    const Tensor back = place.unsqueeze(1) - place;  // how far a position looks
    Tensor unseen = back < 0;
    if (a_.window_of(layer) > 0) unseen = unseen | (back >= a_.window_of(layer));
    const Tensor scores =
        (q.matmul(k.transpose(2, 3)) * a_.score_scale(layer)).masked_fill(unseen, -INFINITY);
    const Tensor mixed = at::softmax(scores, -1).matmul(v).transpose(1, 2).flatten(2);
    return norm(project(mixed, name + "self_attn.o_proj"), get(name + "self_attn.output_norm"),
                a_.hidden_size);
  }
  Tensor mlp(Index layer, const Tensor& stream) const {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    const Tensor x = norm(stream, get(name + "post_attention_layernorm"), a_.hidden_size);
    const Tensor gate = project(x, name + "mlp.gate_proj"), up = project(x, name + "mlp.up_proj");
    const bool is_silu = a_.mlp == model_io::MlpKind::SiluGate;
    const Tensor inner = (is_silu ? at::silu(gate) : at::gelu(gate, "tanh")) * up;
    return norm(project(inner, name + "mlp.down_proj"), get(name + "mlp.output_norm"),
                a_.hidden_size);
  }

  Architecture a_;
  std::map<std::string, Tensor> leaves_;
};

// model_tensors() has views: the gradient of each is the same part of its parameter's.
std::vector<NamedTensor> gradients_of(const Llama& model) {
  std::vector<Tensor> values;
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : model->parameters()) {
    values.push_back(parameter.detach().clone());
    parameter.copy_(parameter.grad());
  }
  std::vector<NamedTensor> out = model->model_tensors();
  for (NamedTensor& tensor : out) tensor.value = tensor.value.clone();
  const std::vector<Tensor> parameters = model->parameters();
  for (std::size_t i = 0; i < values.size(); ++i) Tensor(parameters[i]).copy_(values[i]);
  return out;
}

TEST(LlamaTraits, models_have_the_tensors_of_their_plan) {
  for (const Architecture& architecture : test::trainable_architectures()) {
    const auto plan = model_io::plan_tensors(architecture);
    const auto tensors = Llama(architecture, 1)->model_tensors();
    ASSERT_EQ(tensors.size(), plan.size()) << test::text_of(architecture);
    for (std::size_t i = 0; i < plan.size(); ++i) {
      EXPECT_EQ(tensors[i].name, plan[i].name);
      EXPECT_EQ(tensors[i].value.numel(), plan[i].rows * plan[i].cols) << plan[i].name;
      EXPECT_EQ(tensors[i].value.dim(), plan[i].is_vector ? 1 : 2) << plan[i].name;
    }
  }
}

TEST(LlamaTraits, loss_and_every_gradient_match_a_double_precision_model_by_the_definitions) {
  const Tensor ids = ids_below_48(2, 21), targets = ids_below_48(2, 21, 11);
  for (const Architecture& architecture : test::trainable_architectures()) {
    const Llama model = stirred(architecture);
    Oracle oracle(model);
    const Tensor got = model->loss_sum(ids, targets), want = oracle.loss_sum(ids, targets);
    EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-5 * want.item<double>());
    got.backward();
    want.backward();
    for (const NamedTensor& grad : gradients_of(model)) {
      EXPECT_LE(relative_error(grad.value, oracle.grad(grad.name)), 1e-4)
          << grad.name << " of " << test::text_of(architecture);
    }
  }
}

TEST(LlamaTraits, recomputed_layers_have_the_same_bits) {
  const Tensor ids = ids_below_48(2, 21), targets = ids_below_48(2, 21, 11);
  for (const Architecture& architecture : test::trainable_architectures()) {
    const Llama plain = stirred(architecture);
    Llama recomputed = stirred(architecture);
    recomputed->set_recompute_every(1);
    const Tensor a = plain->loss_sum(ids, targets), b = recomputed->loss_sum(ids, targets);
    EXPECT_EQ(a.item<double>(), b.item<double>());
    a.backward();
    b.backward();
    const auto want = plain->named_parameters(), got = recomputed->named_parameters();
    for (const auto& parameter : want) {
      EXPECT_TRUE(got[parameter.key()].grad().equal(parameter.value().grad())) << parameter.key();
    }
  }
}

TEST(LlamaTraits, new_norms_multiply_by_one) {
  for (const Architecture& architecture : test::trainable_architectures()) {
    const Llama model(architecture, 1);
    for (const NamedTensor& tensor : model->model_tensors()) {
      if (!tensor.name.ends_with("norm.weight")) continue;
      EXPECT_TRUE((tensor.value + architecture.norm_offset).eq(1).all().item<bool>())
          << tensor.name << " of " << test::text_of(architecture);
    }
  }
}

// With windows in all layers, a token is out of sight after layers * (window - 1) positions.
TEST(LlamaTraits, tokens_behind_all_windows_do_not_count) {
  const Architecture mistral = test::trainable_architectures().front();
  ASSERT_EQ(mistral.windows, (std::vector<Index>{8, 8, 8}));
  const Llama model = stirred(mistral);
  const Tensor ids = ids_below_48(1, 40), changed = ids.clone();
  changed[0][3] = (changed[0][3] + 1) % 48;
  const torch::NoGradGuard no_grad;
  const Tensor a = model->forward(ids)[0], b = model->forward(changed)[0];
  const Index last = 3 + 3 * 7;
  EXPECT_FALSE(a[last].equal(b[last]));
  EXPECT_TRUE(a.narrow(0, last + 1, 39 - last).equal(b.narrow(0, last + 1, 39 - last)));
}

TEST(LlamaTraits, that_are_not_computed_are_refused_by_name) {
  const auto said = [](const std::function<void(Architecture&)>& change) {
    Architecture a = test::trainable_architectures()[1];
    change(a);
    return test::refusal([&] { Llama(a, 1); }, ErrorCategory::Unsupported);
  };
  EXPECT_THAT(said([](auto& a) { a.norm = model_io::NormKind::Layer; }), HasSubstr("LayerNorm"));
  EXPECT_THAT(said([](auto& a) { a.mlp = model_io::MlpKind::GeluTanh; }), HasSubstr("gate"));
  EXPECT_THAT(said([](auto& a) { a.learned_positions = true; }), HasSubstr("learned positions"));
  EXPECT_THAT(said([](auto& a) { a.attention_soft_cap = 50; }), HasSubstr("soft cap, got 50"));
  EXPECT_THAT(said([](auto& a) { a.logit_soft_cap = 30; }), HasSubstr("soft cap, got 30"));
  EXPECT_THAT(said([](auto& a) { a.layer_heads = {4, 2, 4}; }), HasSubstr("different widths"));
  EXPECT_THAT(said([](auto& a) { a.rope.rotary_dims = 8; }), HasSubstr("all 16 dimensions"));
  EXPECT_THAT(said([](auto& a) { a.rope.pairing = model_io::RopePairing::Adjacent; }),
              HasSubstr("adjacent pairs"));
}

}  // namespace
}  // namespace hone::nn
