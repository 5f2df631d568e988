// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/predict_memory.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/nn/ops.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

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

std::vector<ParameterShape> llama_shapes(const model_io::Architecture& model) {
  const Index hidden = model.hidden_size, inner = model.intermediate_size;
  const Index attended = model.heads * model.head_dim;
  const Index qkv = attended + 2 * model.kv_heads * model.head_dim;
  std::vector<ParameterShape> out = {{model.vocab_size, hidden, true}, {1, hidden}};
  if (!model.tied_embeddings) out.push_back({model.vocab_size, hidden});
  for (Index layer = 0; layer < model.layers; ++layer) {
    for (const ParameterShape& shape :
         {ParameterShape{1, hidden}, ParameterShape{qkv, hidden}, ParameterShape{hidden, attended},
          ParameterShape{1, hidden}, ParameterShape{2 * inner, hidden},
          ParameterShape{hidden, inner}}) {
      out.push_back(shape);
    }
    const auto add_biases = [&](Index first, Index second) {
      out.push_back({1, first});
      out.push_back({1, second});
    };
    if (model.attention_bias) add_biases(qkv, hidden);
    if (model.mlp_bias) add_biases(2 * inner, hidden);
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

// The peak number of floats while both gradients of x · weightᵀ are computed, including the
// gradients. It is measured on one product, because which operands the libraries copy depends on
// processor and shape.
Index gradient_floats(Index rows, Index inputs, Index outputs, nn::MatmulBackend backend) {
  const c10::AutoGradMode with_gradients(true);
  const memory::MemoryMeter meter;
  const torch::Tensor x = at::zeros({rows, inputs}, at::kFloat).requires_grad_();
  const torch::Tensor weight = at::zeros({outputs, inputs}, at::kFloat).requires_grad_();
  const torch::Tensor product = nn::linear(x, weight, {}, backend);
  const torch::Tensor grad = at::zeros_like(product);
  const Index before = meter.use().current;
  meter.reset_peak();
  product.backward(grad);
  return (meter.use().peak - before) / kFloat;
}

// Floats of a Llama's step, R rows.
struct LlamaFloats {
  Index rows, hidden, qkv, turned, attended, heads, inner, vocab, layers, every;
  bool tied;
  Index head_gradients, down_gradients;  // gradient_floats of the output matrix and of `down`

  // Two norms (sum, normed, 1/rms), qkv, q and k turned, attention and its log-sums, gate and up,
  // their product.
  Index block() const {
    return rows * (4 * hidden + 2 + qkv + turned + attended + heads + 3 * inner);
  }
  bool is_recomputed(Index layer) const { return every > 0 && layer % every == 0; }

  // The last norm's sum, hidden state and 1/rms; logits.
  Index head() const { return rows * (2 * hidden + 1 + vocab); }
  Index kept(Index layer) const {
    if (!is_recomputed(layer)) return block();
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
    const Index at_down = rows * hidden + down_gradients;
    const Index at_swiglu = rows * (hidden + 2 * inner);
    const Index waiting = tied ? vocab * hidden : 0;
    for (Index layer = layers; layer-- > 0; freed += kept(layer)) {
      // The output of a recomputed layer lives until its backward pass is over.
      const Index again = is_recomputed(layer) ? block() + rows * hidden : 0;
      most = std::max(most, waiting + again + std::max(at_down, at_swiglu) - freed);
    }
    return most;
  }
};

}  // namespace

trainer::MemoryParts predict_memory(const LmConfig& config, Index vocab_size, Index batch,
                                    Index positions) {
  const model_io::Architecture model = make_architecture(config, vocab_size);
  const Index rows = batch * positions, hidden = model.hidden_size;
  const nn::MatmulBackend backend = nn::parse_matmul_backend(config.trainer.matmul);
  const LlamaFloats floats{
      .rows = rows,
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
      .head_gradients = gradient_floats(rows, hidden, model.vocab_size, backend),
      .down_gradients = gradient_floats(rows, model.intermediate_size, hidden, backend)};
  const Index weights = model.parameters() * kFloat;
  Index state = 0;
  for (const ParameterShape& shape : llama_shapes(model)) state += state_bytes(shape, config.optim);
  return {.weights = weights,
          .gradients = weights,
          .state = state,
          .activations = floats.activations() * kFloat,
          .workspace = floats.workspace() * kFloat};
}

}  // namespace hone::task
