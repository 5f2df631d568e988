// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/llama.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hone/core/error.h"
#include "hone/train/nn/linear.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/layer_tree.h"
#include "tests/support/tensors.h"

namespace hone::nn {
namespace {

using test::relative_error;
using torch::Tensor;

model_io::Architecture small(Index kv_heads = 2, bool tied = true, bool biases = false) {
  model_io::Architecture out;
  out.vocab_size = 37, out.hidden_size = 24, out.intermediate_size = 40, out.layers = 2;
  out.heads = 4, out.kv_heads = kv_heads, out.head_dim = 8, out.context = 16;
  out.tied_embeddings = tied;
  out.attention_bias = out.mlp_bias = biases;
  out.rope.rotary_dims = out.head_dim;
  return out;
}

Tensor some_ids(Index batch, Index positions, std::uint64_t salt = 0) {
  const Tensor ids = at::empty({batch, positions}, at::kLong);
  for (Index i = 0; i < ids.numel(); ++i) {
    ids.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>((7 * i + i * i + salt) % 37);
  }
  return ids;
}

std::map<std::string, Tensor> weights_of(const LlamaImpl& model) {
  std::map<std::string, Tensor> out;
  for (const NamedTensor& named : parameters_by_path(model)) out[named.name] = named.value;
  return out;
}

TEST(Llama, has_the_parameters_that_its_architecture_counts) {
  for (const bool tied : {true, false}) {
    for (const bool biases : {true, false}) {
      const model_io::Architecture architecture = small(2, tied, biases);
      const Llama model(architecture, 1);
      Index count = 0;
      for (const Tensor& parameter : model->parameters()) count += parameter.numel();
      EXPECT_EQ(count, architecture.parameters()) << tied << biases;
      Index exported = 0;
      for (const NamedTensor& named : model->model_tensors()) exported += named.value.numel();
      EXPECT_EQ(exported, count);
    }
  }
}

TEST(Llama, exports_hugging_face_names_as_views_of_its_parameters) {
  const Llama model(small(2, false, true), 1);
  std::map<std::string, Tensor> by_name;
  for (const NamedTensor& named : model->model_tensors()) {
    EXPECT_TRUE(named.value.is_contiguous()) << named.name;
    by_name[named.name] = named.value;
  }
  EXPECT_EQ(by_name.at("model.layers.1.self_attn.q_proj.weight").sizes(),
            (at::IntArrayRef{32, 24}));
  EXPECT_EQ(by_name.at("model.layers.1.self_attn.k_proj.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(by_name.at("model.layers.0.mlp.down_proj.weight").sizes(), (at::IntArrayRef{24, 40}));
  EXPECT_EQ(by_name.count("lm_head.weight"), 1u);
  by_name.at("model.layers.0.mlp.up_proj.weight").fill_(3);
  const Tensor gate_up = weights_of(*model).at("layers.0.mlp.gate_up_proj.weight");
  EXPECT_TRUE(gate_up.narrow(0, 40, 40).eq(3).all().item<bool>());
  EXPECT_FALSE(gate_up.narrow(0, 0, 40).eq(3).any().item<bool>());
}

TEST(Llama, sees_nothing_of_later_positions) {
  const Llama model(small(), 3);
  const Tensor ids = some_ids(2, 12), changed = ids.clone();
  changed.narrow(1, 7, 5).copy_((changed.narrow(1, 7, 5) + 1) % 37);
  const torch::NoGradGuard no_grad;
  const Tensor a = model->forward(ids), b = model->forward(changed);
  EXPECT_TRUE(a.narrow(1, 0, 7).equal(b.narrow(1, 0, 7)));
  EXPECT_FALSE(a.narrow(1, 7, 1).equal(b.narrow(1, 7, 1)));
}

TEST(Llama, tied_weights_get_the_gradient_of_both_uses) {
  const Tensor ids = some_ids(2, 8), targets = some_ids(2, 8, 5);
  Llama tied(small(2, true), 9), untied(small(2, false), 9);
  {
    const torch::NoGradGuard no_grad;
    untied->named_parameters()["lm_head"].copy_(untied->named_parameters()["embed_tokens"]);
  }
  tied->loss_sum(ids, targets).backward();
  untied->loss_sum(ids, targets).backward();
  const auto parameters = untied->named_parameters();
  const Tensor want = parameters["embed_tokens"].grad() + parameters["lm_head"].grad();
  EXPECT_LE(relative_error(tied->named_parameters()["embed_tokens"].grad(), want), 1e-6);
}

// The whole model again, from composed operators in double precision.
Tensor composed_loss(const Llama& model, const Tensor& ids, const Tensor& targets,
                     std::map<std::string, Tensor>& leaves) {
  const model_io::Architecture& a = model->architecture();
  for (const auto& [name, value] : parameters_by_path(*model)) {
    leaves[name] = value.detach().to(at::kDouble).requires_grad_(true);
  }
  const auto get = [&](const std::string& name) {
    const auto found = leaves.find(name);
    return found == leaves.end() ? Tensor() : found->second;
  };
  const Tensor dims = at::arange(0, a.head_dim, 2, at::kDouble) / a.head_dim;
  const Tensor angles = at::arange(a.context, at::kDouble).unsqueeze(1) *
                        at::pow(at::full({}, a.rope.theta, at::kDouble), -dims);
  const RopeTable rope{angles.cos(), angles.sin()};
  const HeadLayout layout{a.heads, a.kv_heads, a.head_dim};
  const Index rows = ids.numel();
  Tensor x = at::embedding(get("embed_tokens"), ids.reshape({rows})), normed;
  for (Index i = 0; i < a.layers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    const auto project = [&](const Tensor& in, const char* name) {
      return at::linear(in, get(prefix + name + ".weight"), get(prefix + name + ".bias"));
    };
    normed = composed::add_rms_norm(x, {}, get(prefix + "input_norm"), a.norm_eps).second;
    const Tensor qkv = project(normed, "self_attn.qkv_proj").view({ids.size(0), ids.size(1), -1});
    const Tensor attended = composed::causal_attention(qkv, rope, layout).reshape({rows, -1});
    x = x + project(attended, "self_attn.o_proj");
    normed = composed::add_rms_norm(x, {}, get(prefix + "mlp_norm"), a.norm_eps).second;
    x = x +
        project(composed::glu(project(normed, "mlp.gate_up_proj"), Gate::Silu), "mlp.down_proj");
  }
  const Tensor last = composed::add_rms_norm(x, {}, get("norm"), a.norm_eps).second;
  const Tensor head = leaves.count("lm_head") != 0 ? get("lm_head") : get("embed_tokens");
  return composed::linear_cross_entropy(last, head, targets.reshape({-1}));
}

TEST(Llama, loss_and_every_gradient_match_a_double_precision_model_of_composed_operators) {
  const Tensor ids = some_ids(3, 16), targets = some_ids(3, 16, 11);
  targets.data_ptr<std::int64_t>()[5] = -1;  // one that does not count
  for (const Index kv_heads : {1, 2, 4}) {
    for (const bool extras : {false, true}) {
      for (const MatmulBackend backend : {MatmulBackend::Auto, MatmulBackend::Mkl}) {
        Llama model(small(kv_heads, !extras, extras), 5, backend);
        {
          const torch::NoGradGuard no_grad;  // away from the symmetric start: gains and biases too
          std::uint64_t salt = 0;
          for (Tensor& parameter : model->parameters()) {
            parameter.add_(
                at::sin(at::arange(parameter.numel()) + double(salt++)).view_as(parameter) * 0.1);
          }
        }
        std::map<std::string, Tensor> leaves;
        const Tensor want = composed_loss(model, ids, targets, leaves);
        const Tensor got = model->loss_sum(ids, targets);
        EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-5 * want.item<double>());
        want.backward();
        got.backward();
        for (const auto& [name, value] : parameters_by_path(*model)) {
          EXPECT_LE(relative_error(value.grad(), leaves.at(name).grad()), 3e-5)
              << name << " kv " << kv_heads << " extras " << extras;
        }
      }
    }
  }
}

TEST(Llama, loss_is_that_of_its_logits) {
  const Llama model(small(), 2);
  const Tensor ids = some_ids(2, 9), targets = some_ids(2, 9, 4);
  const torch::NoGradGuard no_grad;
  const Tensor logits = model->forward(ids).reshape({-1, 37});
  const double want =
      at::cross_entropy_loss(logits.to(at::kDouble), targets.reshape({-1}), {}, at::Reduction::Sum)
          .item<double>();
  EXPECT_NEAR(model->loss_sum(ids, targets).item<double>(), want, 1e-5 * want);
}

TEST(Llama, starts_near_the_uniform_distribution_and_the_same_for_the_same_seed) {
  const Tensor ids = some_ids(2, 9), targets = some_ids(2, 9, 4);
  const Llama a(small(), 2), b(small(), 2), c(small(), 3);
  const torch::NoGradGuard no_grad;
  const double loss = a->loss_sum(ids, targets).item<double>();
  // Logits of tied weights start with variance 1: half a nat more than the uniform distribution.
  EXPECT_NEAR(loss / 18, std::log(37.0) + 0.5, 0.2);
  EXPECT_EQ(loss, b->loss_sum(ids, targets).item<double>());
  EXPECT_NE(loss, c->loss_sum(ids, targets).item<double>());
}

TEST(Llama, has_its_products_under_the_usual_paths_in_slots) {
  Llama model(small(2, false, true), 1);
  std::vector<std::string> slots;
  for (const Layer& layer : layers_of(*model)) {
    if (layer.slot == nullptr) continue;
    slots.push_back(layer.path);
    EXPECT_EQ(type_of(*layer.module), "Linear");
  }
  std::vector<std::string> wanted;
  for (const char* layer : {"layers.0.", "layers.1."}) {
    for (const char* product :
         {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"}) {
      wanted.push_back(std::string(layer) + product);
    }
  }
  EXPECT_EQ(slots, wanted);
  for (const auto& [name, value] : parameters_by_path(*model)) EXPECT_TRUE(value.defined()) << name;
}

// A product of twice the weight on half of the input, so that the result keeps its bits.
struct HalvedImpl : torch::nn::Module {
  explicit HalvedImpl(const Tensor& from)
      : twice(register_parameter("twice", (2 * from).detach().clone())) {}
  Tensor forward(const Tensor& x) { return linear(x / 2, twice, {}, MatmulBackend::Mkl); }
  Tensor twice;
};
TORCH_MODULE(Halved);

TEST(Llama, calls_what_replaces_a_product_also_where_layers_are_recomputed) {
  const Tensor ids = some_ids(2, 9), targets = some_ids(2, 9, 4);
  for (const Index every : {0, 1}) {
    const Llama dense(small(), 2, MatmulBackend::Mkl);
    Llama model(small(), 2, MatmulBackend::Mkl);
    const std::string path = "layers.1.mlp.gate_up_proj";
    const Halved halved(weights_of(*model).at(path + ".weight"));
    replace(*model, path, torch::nn::AnyModule(halved));
    model->set_recompute_every(every);
    const Tensor loss = model->loss_sum(ids, targets), want = dense->loss_sum(ids, targets);
    EXPECT_EQ(loss.item<double>(), want.item<double>());
    loss.backward();
    want.backward();
    EXPECT_EQ(calls_of(*model, path), every == 0 ? 1 : 2);
    const Tensor grad = weights_of(*dense).at(path + ".weight").grad();
    EXPECT_LE(relative_error(2 * halved->twice.grad(), grad), 1e-6);
    std::vector<std::string> names;
    for (const NamedTensor& named : model->model_tensors()) names.push_back(named.name);
    EXPECT_EQ(std::ranges::count(names, "model." + path + ".twice"), 1);
    EXPECT_EQ(std::ranges::count(names, "model.layers.1.mlp.up_proj.weight"), 0);
    EXPECT_EQ(std::ranges::count(names, "model.layers.0.mlp.up_proj.weight"), 1);
  }
}

TEST(Llama, a_copy_of_its_dense_layer_has_the_same_weights_in_memory_of_its_own) {
  Linear layer(5, 3, true, MatmulBackend::Mkl);
  {
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(at::arange(15).view({3, 5}));
    layer->bias.fill_(2);
  }
  layer->bias.set_requires_grad(false);
  layer->eval();
  const auto copy = std::dynamic_pointer_cast<LinearImpl>(layer->clone());
  ASSERT_NE(copy, nullptr);
  const Tensor x = at::ones({2, 5});
  EXPECT_TRUE(copy->forward(x).equal(layer->forward(x)));
  EXPECT_TRUE(layer->forward(x).equal(at::tensor({12.F, 37.F, 62.F}).expand({2, 3})));
  EXPECT_TRUE(copy->weight.requires_grad());
  EXPECT_FALSE(copy->bias.requires_grad());
  EXPECT_FALSE(copy->is_training());
  copy->weight.detach().zero_();
  EXPECT_EQ(layer->weight.sum().item<float>(), 105);
}

TEST(Llama, refuses_what_it_cannot_run) {
  model_io::Architecture factored = small();
  factored.factored.push_back({.name = "model.layers.0.mlp.down_proj", .rank = 4});
  EXPECT_THROW(Llama(factored, 1), Error);
  model_io::Architecture adjacent = small();
  adjacent.rope.pairing = model_io::RopePairing::Adjacent;
  EXPECT_THROW(Llama(adjacent, 1), Error);
  const Llama model(small(), 1);
  EXPECT_THROW(model->forward(some_ids(1, 17)), Error);
  EXPECT_THROW(model->loss_sum(some_ids(1, 4), some_ids(1, 5)), Error);
  EXPECT_THROW(parse_matmul_backend("blas"), Error);
}

}  // namespace
}  // namespace hone::nn
