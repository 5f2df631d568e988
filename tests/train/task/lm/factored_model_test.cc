// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/factored_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/model_io/model_file.h"
#include "hone/train/nn/linear.h"
#include "hone/train/nn/load_llama.h"
#include "hone/train/sketch/convert.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/layer_tree.h"
#include "hone/train/task/lm/export_lm.h"
#include "hone/train/tensor_file.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

namespace fs = std::filesystem;
using Mode = model_io::FactoredLayer::Mode;
using testing::HasSubstr;
using torch::Tensor;

model_io::Architecture shape(bool biases) {
  model_io::Architecture out = test::tiny_architecture();
  out.attention_bias = out.mlp_bias = biases;
  return out;
}

// Every parameter moves away from its first value, so that no bias is 0.
void stir(nn::LlamaImpl& model) {
  const torch::NoGradGuard no_grad;
  double salt = 0;
  for (Tensor& parameter : model.parameters()) {
    parameter.add_(0.1 * at::sin(at::arange(parameter.numel()) + salt++).view_as(parameter));
  }
}

// One product of each kind becomes a factored layer.
void factor(nn::LlamaImpl& model) {
  const auto put = [&](const char* path, const nn::FitOptions& options) {
    const auto* dense = nn::find_layer(model, path).module->as<torch::nn::LinearImpl>();
    nn::replace(model, path, torch::nn::AnyModule(nn::from_linear(*dense, options)));
  };
  const nn::FitOptions thin{.rank = 5};
  put("layers.0.self_attn.qkv_proj", thin);
  put("layers.1.mlp.down_proj", thin);
  const nn::FitOptions signs{.mode = nn::FactorMode::Sketched,
                             .fit = nn::Fit::Projection,
                             .rank = 12,
                             .terms = 2,
                             .seed = (std::uint64_t{1} << 63) + 5};
  put("layers.1.self_attn.o_proj", signs);
  put("layers.0.mlp.gate_up_proj", signs);
}

nn::Llama factored_model(bool biases) {
  nn::Llama model(shape(biases), 4);
  stir(*model);
  factor(*model);
  return model;
}

Tensor some_ids() { return (at::arange(2 * 13, at::kLong) * 7 % 48).view({2, 13}); }

Tensor logits_of(const nn::Llama& model) {
  const torch::NoGradGuard no_grad;
  return model->forward(some_ids());
}

nn::Llama load(const fs::path& path) {
  const auto file = test::open_bare(path);
  nn::Llama model = make_llama(file->architecture(), 99);
  EXPECT_EQ(nn::load_llama(*model, *file), static_cast<Index>(file->tensors().size()));
  return model;
}

// f32 sums of at most 80 products in another order: about √80 roundings of 6e-8 in each of 2
// layers, hence 1e-5 of the largest logit with a margin.
TEST(FactoredModel, has_the_logits_of_the_dense_model_with_its_effective_weights) {
  for (const bool biases : {false, true}) {
    nn::Llama model = factored_model(biases);
    const Tensor got = logits_of(model);
    for (const nn::Layer& layer : nn::layers_of(*model)) {
      if (auto* held = layer.module->as<nn::FactoredLinearImpl>()) {
        layer.slot->set(torch::nn::AnyModule(nn::to_dense(*held)));
      }
    }
    const Tensor want = logits_of(model);
    EXPECT_LE((got - want).abs().max().item<double>(), 1e-5 * want.abs().max().item<double>());
  }
}

TEST(FactoredModel, takes_the_library_of_the_products_that_it_replaces) {
  nn::Llama model(shape(false), 4, nn::MatmulBackend::Mkl);
  factor(*model);
  const auto found = nn::find_layer(*model, "layers.0.self_attn.qkv_proj");
  EXPECT_EQ(found.module->as<nn::FactoredLinearImpl>()->options().matmul, nn::MatmulBackend::Mkl);
}

TEST(FactoredModel, is_named_by_its_factored_layers) {
  nn::Llama model = factored_model(true);
  std::map<std::string, model_io::FactoredLayer> by_name;
  for (const auto& layer : factored_layers_of(*model)) by_name[layer.name] = layer;
  ASSERT_EQ(by_name.size(), 4U);
  const std::uint64_t seed = (std::uint64_t{1} << 63) + 5;
  EXPECT_EQ(by_name.at("model.layers.0.self_attn.qkv_proj"),
            (model_io::FactoredLayer{"model.layers.0.self_attn.qkv_proj", Mode::LowRank, 5, 1, 0}));
  EXPECT_EQ(
      by_name.at("model.layers.1.self_attn.o_proj"),
      (model_io::FactoredLayer{"model.layers.1.self_attn.o_proj", Mode::Sketched, 12, 2, seed}));
  Index parameters = 0;
  for (const Tensor& parameter : model->parameters()) parameters += parameter.numel();
  EXPECT_EQ(architecture_of(*model).parameters(), parameters);
  nn::Llama dense(shape(true), 4);
  EXPECT_TRUE(factored_layers_of(*dense).empty());
}

TEST(FactoredModel, comes_back_from_its_folder_with_the_same_bits) {
  const test::TemporaryFolder folder;
  for (const bool biases : {false, true}) {
    nn::Llama model = factored_model(biases);
    export_lm(folder.path() / "m", *model, {});
    nn::Llama again = load(folder.path() / "m");
    EXPECT_TRUE(logits_of(again).equal(logits_of(model)));
    const auto want = nn::parameters_by_path(*model), got = nn::parameters_by_path(*again);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].name, want[i].name);
      EXPECT_TRUE(got[i].value.equal(want[i].value)) << got[i].name;
      EXPECT_TRUE(got[i].value.requires_grad()) << got[i].name;
    }
    export_lm(folder.path() / "again", *again, {});
    for (const char* name : {"config.json", "model.safetensors"}) {
      EXPECT_EQ(read_text_file(folder.path() / "m" / name),
                read_text_file(folder.path() / "again" / name));
    }
  }
}

// What any reader of safetensors finds: y = (x aᵀ) b + bias.
TEST(FactoredModel, holds_the_two_factors_in_the_file_and_nothing_of_the_weight) {
  const test::TemporaryFolder folder;
  nn::Llama model = factored_model(true);
  export_lm(folder.path() / "m", *model, {});
  const MmapFile file(folder.path() / "m" / "model.safetensors");
  std::map<std::string, Tensor> stored;
  for (NamedTensor& tensor : read_tensors(file)) stored[tensor.name] = tensor.value;
  const std::string name = "model.layers.1.mlp.down_proj";
  const Tensor a = stored.at(name + ".a"), b = stored.at(name + ".b");
  EXPECT_EQ(a.sizes(), (at::IntArrayRef{5, 40}));
  EXPECT_EQ(b.sizes(), (at::IntArrayRef{5, 32}));
  EXPECT_EQ(stored.at("model.layers.0.mlp.gate_up_proj.s1").sizes(), (at::IntArrayRef{6, 32}));
  EXPECT_EQ(stored.at("model.layers.0.mlp.gate_up_proj.s2").sizes(), (at::IntArrayRef{6, 80}));
  for (const char* gone :
       {"model.layers.1.mlp.down_proj.weight", "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.bias"}) {
    EXPECT_EQ(stored.count(gone), 0U) << gone;
  }
  const torch::NoGradGuard no_grad;
  const Tensor x = at::sin(at::arange(3 * 40, at::kFloat)).view({3, 40});
  const Tensor want = at::mm(at::mm(x.to(at::kDouble), a.to(at::kDouble).t()), b.to(at::kDouble)) +
                      stored.at(name + ".bias").to(at::kDouble);
  auto* layer = nn::find_layer(*model, "layers.1.mlp.down_proj").slot;
  const double off = (layer->forward(x).to(at::kDouble) - want).abs().max().item<double>();
  EXPECT_LE(off, 1e-5 * want.abs().max().item<double>());
}

TEST(FactoredModel, refuses_what_a_file_cannot_hold) {
  const auto said = [](torch::nn::AnyModule layer) {
    nn::Llama model(shape(false), 4);
    nn::replace(*model, "layers.0.mlp.down_proj", std::move(layer));
    const test::TemporaryFolder folder;
    const std::string message = test::refusal([&] { export_lm(folder.path() / "m", *model, {}); },
                                              ErrorCategory::Unsupported);
    EXPECT_FALSE(fs::exists(folder.path() / "m"));
    return message;
  };
  nn::FactoredLinearOptions options{.in_features = 40,
                                    .out_features = 32,
                                    .rank = 4,
                                    .mode = nn::FactorMode::LowRank,
                                    .bias = false,
                                    .epilogue = {.activation = nn::Activation::Relu}};
  EXPECT_THAT(said(torch::nn::AnyModule(nn::FactoredLinear(options))),
              HasSubstr("[layers.0.mlp.down_proj] A model file cannot hold a layer with an "
                        "activation or dropout of its own."));
  options.epilogue = {};
  options.mode = nn::FactorMode::Sketched;
  nn::FactoredWeights weights{at::zeros({2, 40}), at::zeros({2, 32}), {}, {}};
  weights.signs = nn::pack_signs(at::ones({2 * (32 + 40)}));
  EXPECT_THAT(said(torch::nn::AnyModule(nn::FactoredLinear(options, weights))),
              HasSubstr("signs that no seed draws"));
  EXPECT_THAT(said(torch::nn::AnyModule(torch::nn::Identity())),
              HasSubstr("expected Linear or FactoredLinear, which a model file can hold, got "
                        "Identity"));
}

}  // namespace
}  // namespace hone::task
