// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/factored_layers.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/names.h"
#include "hone/train/compress/quantized_linear.h"
#include "hone/train/sketch/sketched_conv.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/layer_tree.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/tensor_file.h"

namespace hone::task {
namespace {

namespace fs = std::filesystem;

using torch::Tensor;
using Mode = FactoredLayer::Mode;

bool is_sketched(const FactoredLayer& layer) { return layer.mode == Mode::Sketched; }

std::string key_of(const std::string& path) {
  return concat("factored_layers: ", quote_name(path));
}

// Whatever its rank, a sketched layer draws as many signs for each output.
Index most_rank(const nn::FactorSize& size) {
  return std::max<Index>(256, 4 * std::min(size.inputs, size.outputs));
}

// What the rank should be; empty if it is so.
std::string rank_problem(const FactoredLayer& layer, const nn::FactorSize& size) {
  const Index most = most_rank(size);
  if (layer.rank < 1 || layer.rank > most) return concat("a rank of 1 to ", most);
  const bool divides =
      layer.terms >= 1 && layer.terms <= layer.rank && layer.rank % (2 * layer.terms) == 0;
  if (divides || !is_sketched(layer)) return "";
  return concat("a rank that is a multiple of 2 * terms, terms ", layer.terms);
}

// A dense layer that may be replaced; both null for any other.
struct Dense {
  const torch::nn::LinearImpl* linear = nullptr;
  const torch::nn::Conv2dImpl* conv = nullptr;

  explicit operator bool() const { return linear != nullptr || conv != nullptr; }
  const Tensor& weight() const { return linear != nullptr ? linear->weight : conv->weight; }
  nn::FactorSize size() const {
    return {weight().numel() / weight().size(0), weight().size(0), /*rank=*/0};
  }
};

Dense find_dense(nn::VisionNetImpl& net, const std::string& path) {
  for (const nn::Layer& layer : nn::layers_of(net)) {
    if (layer.path != path || layer.slot == nullptr) continue;
    return {layer.module->as<torch::nn::Linear>(), layer.module->as<torch::nn::Conv2d>()};
  }
  return {};
}

std::vector<nn::TensorRequest> requests_of(const Dense& dense, const FactoredLayer& layer) {
  const bool sketched = is_sketched(layer);
  std::vector<nn::TensorRequest> out;
  const auto add = [&](const char* name, std::vector<std::int64_t> sizes) {
    out.push_back({.name = concat(layer.name, '.', name), .sizes = std::move(sizes)});
  };
  std::vector<std::int64_t> first = dense.weight().sizes().vec();
  const Index outputs = first[0];
  if (dense.conv != nullptr) {
    first[0] = layer.rank;
    add(sketched ? "s" : "a", first);
    if (!sketched) add("b", {outputs, layer.rank, 1, 1});
    return out;
  }
  add(sketched ? "s1" : "a", {layer.width(), first[1]});
  add(sketched ? "s2" : "b", {layer.width(), outputs});
  add("bias", {outputs});
  return out;
}

torch::nn::AnyModule make_layer(const Dense& dense, const FactoredLayer& layer,
                                const nn::TensorSource& source) {
  std::vector<Tensor> tensors;
  for (const nn::TensorRequest& request : requests_of(dense, layer)) {
    tensors.push_back(source(request));
  }
  const auto set_recipe = [&](auto& options) {
    options.rank = layer.rank;
    options.terms = layer.terms;
    options.mode = is_sketched(layer) ? nn::FactorMode::Sketched : nn::FactorMode::LowRank;
    options.seed = layer.seed;
  };
  if (dense.linear != nullptr) {
    nn::FactoredLinearOptions options;
    options.in_features = dense.size().inputs;
    options.out_features = dense.size().outputs;
    set_recipe(options);
    return torch::nn::AnyModule(
        nn::FactoredLinear(options, nn::FactoredWeights{tensors[0], tensors[1], tensors[2], {}}));
  }
  nn::SketchedConv2dOptions options = nn::geometry_of(*dense.conv);
  set_recipe(options);
  nn::SketchedConv2dWeights weights;
  weights.first = tensors[0];
  if (!is_sketched(layer)) weights.second = tensors[1];
  return torch::nn::AnyModule(nn::SketchedConv2d(options, weights));
}

// The options of a linear layer, or of a convolution as nn::LayerBuilder makes them.
bool is_plain(const nn::FactoredLinearOptions& options) {
  return options.bias && options.epilogue.activation == nn::Activation::None &&
         options.epilogue.dropout == 0;
}
bool is_plain(const nn::SketchedConv2dOptions& options) {
  const Index kernel = options.kernel[0], padding = kernel / 2;
  return !options.bias && options.groups == 1 &&
         options.kernel == nn::HeightWidth{kernel, kernel} &&
         options.stride[0] == options.stride[1] && options.dilation == nn::HeightWidth{1, 1} &&
         options.padding == nn::HeightWidth{padding, padding} &&
         options.padding_mode == nn::PaddingMode::Zeros;
}
nn::FactorSize size_of(const nn::FactoredLinearOptions& options) { return options.size(); }
nn::FactorSize size_of(const nn::SketchedConv2dOptions& options) { return options.group_size(); }

template <class Impl>
FactoredLayer describe(const std::string& path, const Impl& layer) {
  const auto& options = layer.options();
  if (!is_plain(options) || layer.signs().defined()) {
    fail_unsupported(key_of(path),
                     "The layer has other options than those that a classifier's folder can name.");
  }
  FactoredLayer out{.name = path, .rank = options.rank};
  if (options.mode == nn::FactorMode::Sketched) {
    const nn::SketchRecipe recipe = layer.recipe();
    out.mode = Mode::Sketched;
    out.terms = recipe.terms;
    out.seed = recipe.seed;
  }
  const std::string problem = rank_problem(out, size_of(options));
  if (!problem.empty()) fail_unsupported(key_of(path), problem, concat(out.rank));
  return out;
}

}  // namespace

std::vector<FactoredLayer> factored_layers_of(nn::VisionNetImpl& net) {
  std::vector<FactoredLayer> out;
  for (const nn::Layer& layer : nn::layers_of(net)) {
    if (layer.slot == nullptr) continue;
    if (const auto* linear = layer.module->as<nn::FactoredLinear>()) {
      out.push_back(describe(layer.path, *linear));
    } else if (const auto* conv = layer.module->as<nn::SketchedConv2d>()) {
      out.push_back(describe(layer.path, *conv));
    } else if (layer.module->as<torch::nn::Linear>() == nullptr &&
               layer.module->as<torch::nn::Conv2d>() == nullptr &&
               dynamic_cast<nn::QuantizedLayer*>(layer.module.get()) == nullptr) {
      fail_unsupported(key_of(layer.path),
                       "a linear layer, a convolution, factors of one, or a quantized one",
                       nn::type_of(*layer.module));
    }
  }
  return out;
}

void factor_layers(nn::VisionNetImpl& net, const std::vector<FactoredLayer>& layers,
                   const nn::TensorSource& source, std::string_view where) {
  for (const FactoredLayer& layer : layers) {
    const std::string key = concat(where, ": ", key_of(layer.name));
    const Dense dense = find_dense(net, layer.name);
    if (!dense) fail_corrupt(key, "The model has no convolution or linear layer of this name.");
    if (layer.mode == Mode::Projected)
      fail_corrupt(key, "Projected layers are only in language models.");
    const std::string problem = rank_problem(layer, dense.size());
    if (!problem.empty()) fail_corrupt(key, problem, concat(layer.rank));
    nn::replace(net, layer.name, make_layer(dense, layer, source));
  }
}

void factor_layers_like(nn::VisionNetImpl& net, const fs::path& weights) {
  const fs::path path = weights.parent_path() / "config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const Json json = read_json_file(path);
  if (!json.is_object() || json.value("format", Json()) != kVisionFormat) return;
  const std::vector<FactoredLayer> layers =
      model_io::read_factored_layers(model_io::JsonFields(json, path.string()));
  if (layers.empty()) return;
  std::map<std::string, Tensor> stored;
  for (NamedTensor& tensor : read_tensors(MmapFile(weights))) {
    stored.emplace(std::move(tensor.name), std::move(tensor.value));
  }
  for (const FactoredLayer& layer : layers) {
    const Dense dense = find_dense(net, layer.name);
    if (!dense) continue;
    const std::vector<nn::TensorRequest> requests = requests_of(dense, layer);
    const bool fits = std::ranges::all_of(requests, [&](const nn::TensorRequest& request) {
      const auto found = stored.find(request.name);
      return found != stored.end() && found->second.sizes() == request.sizes &&
             found->second.is_floating_point();
    });
    if (!fits) continue;
    const auto source = [&](const nn::TensorRequest& request) {
      return stored.at(request.name).to(request.type);
    };
    factor_layers(net, {layer}, source, path.string());
  }
}

}  // namespace hone::task
