// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/factored_model.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <string_view>

#include "hone/core/check.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/layer_tree.h"

namespace hone::task {
namespace {

using Mode = model_io::FactoredLayer::Mode;

constexpr std::string_view kPrefix = "model.";  // of names in files

model_io::FactoredLayer describe(const nn::Layer& layer, const nn::FactoredLinearImpl& held) {
  const nn::FactoredLinearOptions& options = held.options();
  const auto refuse = [&](std::string_view what) {
    fail_unsupported(layer.path, concat("A model file cannot hold ", what, "."));
  };
  if (options.epilogue.activation != nn::Activation::None || options.epilogue.dropout > 0) {
    refuse("a layer with an activation or dropout of its own");
  }
  if (held.signs().defined()) {
    refuse("a sketched layer with signs that no seed draws");
  }
  model_io::FactoredLayer out{.name = concat(kPrefix, layer.path), .rank = options.rank};
  if (options.mode == nn::FactorMode::Sketched) {
    const nn::SketchRecipe recipe = held.recipe();
    out.mode = Mode::Sketched;
    out.terms = recipe.terms;
    out.seed = recipe.seed;
  }
  return out;
}

}  // namespace

nn::FactoredLinear new_layer(const model_io::FactoredLayer& layer,
                             const model_io::LayerProduct& product, nn::MatmulBackend backend) {
  const nn::FactoredLinearOptions options{
      .in_features = product.inputs,
      .out_features = product.outputs,
      .rank = layer.rank,
      .terms = layer.terms,
      .mode = layer.mode == Mode::Sketched ? nn::FactorMode::Sketched : nn::FactorMode::LowRank,
      .bias = product.bias,
      .seed = layer.seed,
      .recompute = false,
      .epilogue = {},
      .matmul = nn::resolve(backend)};
  nn::FactoredWeights weights;
  weights.first = at::zeros({options.width(), options.in_features});
  weights.second = at::zeros({options.width(), options.out_features});
  if (options.bias) weights.bias = at::zeros({options.out_features});
  return nn::FactoredLinear(options, weights);
}

nn::Llama make_llama(const model_io::Architecture& architecture, std::uint64_t seed,
                     nn::MatmulBackend backend) {
  model_io::validate(architecture, "Llama");
  model_io::Architecture dense = architecture;
  dense.factored.clear();
  nn::Llama model(dense, seed, backend);
  const std::vector<model_io::LayerProduct> products = model_io::layer_products(architecture);
  for (const model_io::FactoredLayer& layer : architecture.factored) {
    if (layer.mode == Mode::Projected)
      fail_unsupported(layer.name, "A layer that compression factored is not trained further.");
    const auto product = std::ranges::find_if(
        products, [&](const auto& one) { return layer.name.ends_with(concat('.', one.name)); });
    nn::replace(*model, layer.name.substr(kPrefix.size()),
                torch::nn::AnyModule(new_layer(layer, *product, backend)));
  }
  return model;
}

std::vector<model_io::FactoredLayer> factored_layers_of(nn::LlamaImpl& model) {
  std::vector<model_io::FactoredLayer> out;
  for (const nn::Layer& layer : nn::layers_of(model)) {
    if (layer.slot == nullptr || layer.module->as<torch::nn::LinearImpl>() != nullptr) continue;
    const auto* factored = layer.module->as<nn::FactoredLinearImpl>();
    if (factored == nullptr) {
      fail_unsupported(layer.path, "Linear or FactoredLinear, which a model file can hold",
                       nn::type_of(*layer.module));
    }
    out.push_back(describe(layer, *factored));
  }
  return out;
}

model_io::Architecture architecture_of(nn::LlamaImpl& model) {
  model_io::Architecture out = model.architecture();
  out.factored = factored_layers_of(model);
  return out;
}

}  // namespace hone::task
