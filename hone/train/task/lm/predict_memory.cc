// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/predict_memory.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/train/nn/ops.h"
#include "hone/train/optim/rule_table.h"

namespace hone::task {
namespace {

constexpr Index kFloat = sizeof(float);

struct ParameterShape {
  Index rows, cols;  // 1 row: a vector
  enum class Role { Hidden, Embedding, Output } role = Role::Hidden;
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
  std::vector<ParameterShape> out = {{model.vocab_size, hidden, ParameterShape::Role::Embedding},
                                     {1, hidden}};
  if (!model.tied_embeddings) {
    out.push_back({model.vocab_size, hidden, ParameterShape::Role::Output});
  }
  for (const std::vector<Product>& products : layers) {
    const Index norms = (model.pre_norms ? 2 : 0) + (model.post_norms ? 2 : 0);
    out.insert(out.end(), static_cast<std::size_t>(norms), {1, hidden});
    if (model.qk_norm != model_io::QkNorm::None) {
      const bool by_head = model.qk_norm == model_io::QkNorm::Head;
      out.push_back({1, (by_head ? 1 : model.heads) * model.head_dim});
      out.push_back({1, (by_head ? 1 : model.kv_heads) * model.head_dim});
    }
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
  const optim::RuleEntry& rule = optim::find_entry(optim.name);
  const bool by_row =
      rule.is_torque() && shape.rows > 1 &&
      (optim.correlation_method == "vectorized" ||
       (optim.correlation_method == "auto" && elements > optim.large_tensor_threshold));
  Index moment = elements * kFloat;
  if (optim.state_dtype == "bf16") moment = elements * Index{sizeof(std::uint16_t)};
  if (optim.state_dtype == "8bit" && shape.role != ParameterShape::Role::Embedding &&
      elements >= optim::kFewestCoded && !(by_row && shape.cols % kernels::kCodeBlock != 0)) {
    const Index blocks = (elements + kernels::kCodeBlock - 1) / kernels::kCodeBlock;
    moment = elements + blocks * kFloat;
  }
  const Index correlation = by_row ? shape.rows * Index{sizeof(double)} : 0;
  return rule.moments(optim) * moment + correlation;
}

// Floats of the update of the parameter that takes most at a time.
Index update_floats(const std::vector<ParameterShape>& shapes, const optim::OptimConfig& optim) {
  const optim::RuleEntry& rule = optim::find_entry(optim.name);
  Index most = 0;
  if (rule.workspace == nullptr) return most;
  for (const auto& [rows, cols, role] : shapes) {
    const bool is_hidden = rows > 1 && role == ParameterShape::Role::Hidden;
    if (is_hidden) most = std::max(most, rule.workspace(rows, cols));
  }
  return most;
}

// Floats of the gradient of a weight [outputs, inputs] while it is computed from `rows` rows.
// oneDNN copies a transposed first operand, and hone lets the narrower one come first.
Index weight_gradient_floats(Index rows, Index inputs, Index outputs, nn::MatmulBackend backend) {
  const Index result = outputs * inputs;
  if (backend != nn::MatmulBackend::OneDnn) return result;
  return outputs <= inputs ? result + rows * outputs : result + std::max(rows * inputs, result);
}

// The peak number of floats while the gradients of a layer's input and weights are computed,
// including the gradients.
Index gradient_floats(const Product& product, Index rows, nn::MatmulBackend backend) {
  const auto& [planned, factored] = product;
  const Index by_input = rows * planned.inputs;
  if (factored == nullptr) {
    return by_input + weight_gradient_floats(rows, planned.inputs, planned.outputs, backend);
  }
  // A sketched layer has as many rows of fixed signs as it trains.
  const bool is_sketched = factored->mode == model_io::FactoredLayer::Mode::Sketched;
  const Index width = factored->width(), all = is_sketched ? 2 * width : width;
  const Index by_first = weight_gradient_floats(rows, planned.inputs, width, backend);
  const Index by_second = weight_gradient_floats(rows, planned.outputs, width, backend);
  return by_input + std::max(rows * all + by_first, width * planned.inputs + by_second);
}

// The results and 1/rms of a layer's norms, per row. The sum before a norm is kept either way.
Index norm_floats(const model_io::Architecture& model) {
  const Index qk = model.qk_norm == model_io::QkNorm::None   ? 0
                   : model.qk_norm == model_io::QkNorm::Head ? model.heads + model.kv_heads
                                                             : 2;
  return (2 + (model.pre_norms ? 2 : 0) + (model.post_norms ? 2 : 0)) * model.hidden_size +
         (model.pre_norms ? 2 : 0) + (model.post_norms ? 2 : 0) + qk;
}

// The masks of windows that are shorter than `positions`.
Index mask_floats(const model_io::Architecture& model, Index positions) {
  std::set<Index> windows;
  for (Index layer = 0; layer < model.layers; ++layer) {
    const Index window = model.window_of(layer);
    if (window > 0 && window < positions) windows.insert(window);
  }
  return std::ssize(windows) * positions * positions;
}

// Floats of a Llama's step, R rows.
struct LlamaFloats {
  Index rows, hidden, norms, masks, qkv, turned, attended, heads, inner, vocab, layers, every;
  bool tied;
  nn::MatmulBackend backend;
  std::vector<Index> down_gradients, hidden_columns;  // of each layer, of its factored products

  // Norms, qkv, q and k turned, attention and its log-sums, gate and up, their product.
  Index block(Index layer) const {
    return rows * (norms + qkv + turned + attended + heads + 3 * inner +
                   hidden_columns[static_cast<std::size_t>(layer)]);
  }
  bool is_recomputed(Index layer) const { return every > 0 && layer % every == 0; }

  // The last norm's sum and 1/rms; gradients of the hidden state and of the output matrix.
  Index head() const { return rows * (2 * hidden + 1) + vocab * hidden; }
  // Above that at the end of the forward pass: the hidden state, a chunk's logits and its part of
  // the gradient of the output matrix.
  Index head_workspace() const {
    const Index chunk = std::min(rows, nn::logits_rows(vocab)), matrix = vocab * hidden;
    const Index part = weight_gradient_floats(chunk, hidden, vocab, backend);
    return rows * hidden + chunk * vocab + (chunk < rows ? part : part - matrix);
  }
  Index kept(Index layer) const {
    if (!is_recomputed(layer)) return block(layer);
    // x and delta. The first layer has no delta, and after a kept layer x is already counted.
    return (layer > 0 && is_recomputed(layer - 1) ? 2 : 1) * rows * hidden;
  }
  Index activations() const {
    Index floats = head() + masks;
    for (Index layer = 0; layer < layers; ++layer) floats += kept(layer);
    return floats;
  }

  // The peak above the activations: at the head, or where its gradients are scaled in the backward
  // pass; in each layer, recomputed activations and the gradients of `down` or of SwiGLU, less what
  // the later layers have freed. The gradient of a tied matrix stays alive until its second part is
  // added at the very end.
  Index workspace() const {
    Index most = std::max(head_workspace(), rows * hidden + vocab * hidden), freed = head();
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
  const nn::MatmulBackend backend = nn::resolve(nn::parse_matmul_backend(config.trainer.matmul));
  const std::vector<std::vector<Product>> layers = products_of(model);
  std::vector<Index> hidden_columns;
  for (const std::vector<Product>& products : layers) {
    Index columns = 0;
    for (const Product& product : products) columns += product.hidden_columns();
    hidden_columns.push_back(columns);
  }
  std::vector<Index> down_gradients;
  for (const std::vector<Product>& products : layers) {
    down_gradients.push_back(gradient_floats(products.back(), rows, backend));
  }
  const LlamaFloats floats{.rows = rows,
                           .hidden = hidden,
                           .norms = norm_floats(model),
                           .masks = mask_floats(model, positions),
                           .qkv = (model.heads + 2 * model.kv_heads) * model.head_dim,
                           .turned = (model.heads + model.kv_heads) * model.head_dim,
                           .attended = model.heads * model.head_dim,
                           .heads = model.heads,
                           .inner = model.intermediate_size,
                           .vocab = model.vocab_size,
                           .layers = model.layers,
                           .every = config.trainer.recompute_every,
                           .tied = model.tied_embeddings,
                           .backend = backend,
                           .down_gradients = std::move(down_gradients),
                           .hidden_columns = std::move(hidden_columns)};
  const Index weights = model.parameters() * kFloat;
  const std::vector<ParameterShape> shapes = llama_shapes(model, layers);
  Index state = 0;
  for (const ParameterShape& shape : shapes) state += state_bytes(shape, config.optim);
  // The update begins when the activations are gone.
  const Index workspace =
      std::max(floats.workspace(), update_floats(shapes, config.optim) - floats.activations());
  return {.weights = weights,
          .gradients = weights,
          .state = state,
          .averages = config.trainer.ema_decay > 0 ? weights : 0,
          .activations = floats.activations() * kFloat,
          .workspace = workspace * kFloat};
}

}  // namespace hone::task
