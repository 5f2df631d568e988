// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/predict_memory.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/container/any.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/nn/linear.h"
#include "hone/train/optim/multi_tensor_optimizer.h"
#include "hone/train/sketch/layer_facts.h"
#include "hone/train/task/lm/factored_model.h"

namespace hone::task {
namespace {

constexpr Index kFloat = sizeof(float);

// Moments that a rule keeps per parameter.
Index moments_of(const optim::OptimConfig& optim) {
  if (optim.name == "sgd" && optim.momentum == 0) return 0;
  constexpr std::array<std::string_view, 4> kOne = {"sgd", "adagrad", "lion", "tam"};
  return std::find(kOne.begin(), kOne.end(), optim.name) != kOne.end() ? 1 : 2;
}

struct ParameterShape {
  Index rows, cols;  // 1 row: a vector
  bool embedding = false;
};

// The products of an architecture in the order of its layers; `factored` is null for dense ones.
struct Product {
  model_io::LayerProduct planned;
  const model_io::FactoredLayer* factored = nullptr;

  // What the backward pass keeps of x aᵀ, per row of x.
  Index hidden_columns() const { return factored == nullptr ? 0 : factored->width(); }
};

std::vector<std::vector<Product>> products_of(const model_io::Architecture& model) {
  std::unordered_map<std::string_view, const model_io::FactoredLayer*> by_name;
  for (const model_io::FactoredLayer& layer : model.factored) by_name.emplace(layer.name, &layer);
  std::vector<std::vector<Product>> out;
  for (Index layer = 0; layer < model.layers; ++layer) {
    std::vector<Product>& products = out.emplace_back();
    for (model_io::LayerProduct& planned : model_io::layer_products(model)) {
      const auto found = by_name.find(model_io::layer_name(layer, planned.name));
      products.push_back({std::move(planned), found == by_name.end() ? nullptr : found->second});
    }
  }
  return out;
}

std::vector<ParameterShape> llama_shapes(const model_io::Architecture& model,
                                         const std::vector<std::vector<Product>>& layers) {
  const Index hidden = model.hidden_size;
  std::vector<ParameterShape> out = {{model.vocab_size, hidden, true}, {1, hidden}};
  if (!model.tied_embeddings) out.push_back({model.vocab_size, hidden});
  for (const std::vector<Product>& products : layers) {
    out.insert(out.end(), {{1, hidden}, {1, hidden}});
    for (const auto& [planned, factored] : products) {
      if (factored != nullptr) {
        out.push_back({factored->width(), planned.inputs});
        out.push_back({factored->width(), planned.outputs});
      } else {
        out.push_back({planned.outputs, planned.inputs});
      }
      if (planned.bias) out.push_back({1, planned.outputs});
    }
  }
  return out;
}

// The optimizer state of one parameter, as MultiTensorOptimizer stores it.
Index state_bytes(const ParameterShape& shape, const optim::OptimConfig& optim) {
  const Index elements = shape.rows * shape.cols;
  const bool is_tam = optim.name.find("tam") != std::string::npos;
  const bool by_row =
      is_tam && shape.rows > 1 &&
      (optim.correlation_method == "vectorized" ||
       (optim.correlation_method == "auto" && elements > optim.large_tensor_threshold));
  Index moment = elements * kFloat;
  if (optim.state_dtype == "bf16") moment = elements * Index{sizeof(std::uint16_t)};
  if (optim.state_dtype == "8bit" && !shape.embedding && elements >= optim::kFewestCoded &&
      !(by_row && shape.cols % kernels::kCodeBlock != 0)) {
    const Index blocks = (elements + kernels::kCodeBlock - 1) / kernels::kCodeBlock;
    moment = elements + blocks * kFloat;
  }
  const Index correlation = by_row ? shape.rows * Index{sizeof(double)} : 0;
  return moments_of(optim) * moment + correlation;
}

// The peak number of floats while the gradients of a layer's input and weights are computed,
// including the gradients. It is measured on one product, because which operands the libraries copy
// depends on processor and shape.
Index gradient_floats(torch::nn::AnyModule layer, Index rows, Index inputs) {
  const c10::AutoGradMode with_gradients(true);
  const memory::MemoryMeter meter;
  const torch::Tensor x = at::zeros({rows, inputs}, at::kFloat).requires_grad_();
  const torch::Tensor product = layer.forward(x);
  const torch::Tensor grad = at::zeros_like(product);
  const Index before = meter.use().current;
  meter.reset_peak();
  product.backward(grad);
  return (meter.use().peak - before) / kFloat;
}

Index gradient_floats(const Product& product, Index rows, nn::MatmulBackend backend) {
  const auto& [planned, factored] = product;
  if (factored == nullptr) {
    return gradient_floats(
        torch::nn::AnyModule(nn::Linear(planned.inputs, planned.outputs, false, backend)), rows,
        planned.inputs);
  }
  // The model itself has warned of a layer past its break-even.
  const nn::LayerWarning receiver = nn::set_layer_warning([](std::string_view) {});
  const nn::FactoredLinear layer = new_layer(*factored, planned, backend);
  nn::set_layer_warning(receiver);
  return gradient_floats(torch::nn::AnyModule(layer), rows, planned.inputs);
}

// gradient_floats of each layer's `down`, measured once for layers that are alike.
std::vector<Index> down_gradients(const std::vector<std::vector<Product>>& layers, Index rows,
                                  nn::MatmulBackend backend) {
  std::map<std::pair<bool, Index>, Index> measured;  // by what it is and its rank
  std::vector<Index> out;
  for (const std::vector<Product>& products : layers) {
    const Product& down = products.back();
    const auto* factored = down.factored;
    const bool is_sketched =
        factored != nullptr && factored->mode == model_io::FactoredLayer::Mode::Sketched;
    const std::pair key{is_sketched, factored == nullptr ? 0 : factored->rank};
    const auto [found, is_new] = measured.try_emplace(key, 0);
    if (is_new) found->second = gradient_floats(down, rows, backend);
    out.push_back(found->second);
  }
  return out;
}

// Floats of a Llama's step, R rows.
struct LlamaFloats {
  Index rows, hidden, qkv, turned, attended, heads, inner, vocab, layers, every;
  bool tied;
  Index head_gradients;                               // gradient_floats of the output matrix
  std::vector<Index> down_gradients, hidden_columns;  // of each layer, of its factored products

  // Two norms (sum, normed, 1/rms), qkv, q and k turned, attention and its log-sums, gate and up,
  // their product.
  Index block(Index layer) const {
    return rows * (4 * hidden + 2 + qkv + turned + attended + heads + 3 * inner +
                   hidden_columns[static_cast<std::size_t>(layer)]);
  }
  bool is_recomputed(Index layer) const { return every > 0 && layer % every == 0; }

  // The last norm's sum, hidden state and 1/rms; logits.
  Index head() const { return rows * (2 * hidden + 1 + vocab); }
  Index kept(Index layer) const {
    if (!is_recomputed(layer)) return block(layer);
    // x and delta. The first layer has no delta, and after a kept layer x is already counted.
    return (layer > 0 && is_recomputed(layer - 1) ? 2 : 1) * rows * hidden;
  }
  Index activations() const {
    Index floats = head();
    for (Index layer = 0; layer < layers; ++layer) floats += kept(layer);
    return floats;
  }

  // The peak above the activations: at the head, the gradients of hidden state and output matrix;
  // in each layer, recomputed activations and the gradients of `down` or of SwiGLU, less what the
  // later layers have freed. The gradient of a tied matrix stays alive until its second part is
  // added at the very end.
  Index workspace() const {
    Index most = head_gradients, freed = head();
    const Index at_swiglu = rows * (hidden + 2 * inner);
    const Index waiting = tied ? vocab * hidden : 0;
    for (Index layer = layers; layer-- > 0; freed += kept(layer)) {
      // The output of a recomputed layer lives until its backward pass is over.
      const Index again = is_recomputed(layer) ? block(layer) + rows * hidden : 0;
      const Index at_down = rows * hidden + down_gradients[static_cast<std::size_t>(layer)];
      most = std::max(most, waiting + again + std::max(at_down, at_swiglu) - freed);
    }
    return most;
  }
};

}  // namespace

trainer::MemoryParts predict_memory(const LmConfig& config, const model_io::Architecture& model,
                                    Index batch, Index positions) {
  const Index rows = batch * positions, hidden = model.hidden_size;
  const nn::MatmulBackend backend = nn::parse_matmul_backend(config.trainer.matmul);
  const std::vector<std::vector<Product>> layers = products_of(model);
  std::vector<Index> hidden_columns;
  for (const std::vector<Product>& products : layers) {
    Index columns = 0;
    for (const Product& product : products) columns += product.hidden_columns();
    hidden_columns.push_back(columns);
  }
  Product head;
  head.planned.inputs = hidden;
  head.planned.outputs = model.vocab_size;
  const LlamaFloats floats{.rows = rows,
                           .hidden = hidden,
                           .qkv = (model.heads + 2 * model.kv_heads) * model.head_dim,
                           .turned = (model.heads + model.kv_heads) * model.head_dim,
                           .attended = model.heads * model.head_dim,
                           .heads = model.heads,
                           .inner = model.intermediate_size,
                           .vocab = model.vocab_size,
                           .layers = model.layers,
                           .every = config.trainer.recompute_every,
                           .tied = model.tied_embeddings,
                           .head_gradients = gradient_floats(head, rows, backend),
                           .down_gradients = down_gradients(layers, rows, backend),
                           .hidden_columns = std::move(hidden_columns)};
  const Index weights = model.parameters() * kFloat;
  Index state = 0;
  for (const ParameterShape& shape : llama_shapes(model, layers)) {
    state += state_bytes(shape, config.optim);
  }
  return {.weights = weights,
          .gradients = weights,
          .state = state,
          .activations = floats.activations() * kFloat,
          .workspace = floats.workspace() * kFloat};
}

}  // namespace hone::task
