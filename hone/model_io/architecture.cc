// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/architecture.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::model_io {
namespace {

constexpr Index kMaxHidden = 65'536;
constexpr Index kMaxIntermediate = Index{1} << 20;
constexpr Index kMaxLayers = 512;
constexpr Index kMaxVocab = Index{1} << 22;
constexpr Index kMaxContext = Index{1} << 24;
constexpr Index kMinHeadDim = 8, kMaxHeadDim = 512;

void check_range(Index value, Index low, Index high, std::string_view what,
                 const std::string& where) {
  if (value < low || value > high)
    fail_corrupt(where, concat(what, " of ", low, " to ", high), concat(value));
}

void check_positive(double value, double high, std::string_view what, const std::string& where) {
  if (!(value > 0 && value <= high))
    fail_corrupt(where, concat(what, " above 0 and at most ", high), concat(value));
}

void validate_rope(const RopeSpec& rope, Index head_dim, const std::string& where) {
  check_positive(rope.theta, 1e12, "a rope base", where);
  check_range(rope.rotary_dims, 2, head_dim, "a number of rotary dimensions", where);
  if (rope.rotary_dims % 2 != 0)
    fail_corrupt(where, "an even number of rotary dimensions", concat(rope.rotary_dims));
  if (rope.scaling != RopeScaling::None) check_positive(rope.factor, 1e6, "a rope factor", where);
  if (rope.scaling == RopeScaling::Llama3 || rope.scaling == RopeScaling::Yarn)
    check_range(rope.original_context, 1, kMaxContext, "an original context length", where);
  if (rope.scaling == RopeScaling::Llama3) {
    check_positive(rope.low_freq_factor, 1e6, "a low frequency factor", where);
    if (!(rope.high_freq_factor > rope.low_freq_factor && rope.high_freq_factor <= 1e6))
      fail_corrupt(where, concat("a high frequency factor above ", rope.low_freq_factor),
                   concat(rope.high_freq_factor));
  }
  if (rope.scaling == RopeScaling::Yarn) {
    check_positive(rope.beta_slow, 1e6, "beta_slow", where);
    check_positive(rope.beta_fast, 1e6, "beta_fast", where);
    if (!(rope.attention_factor >= 0 && rope.attention_factor <= 1e6))
      fail_corrupt(where, "an attention factor of at least 0", concat(rope.attention_factor));
    if (!(rope.theta > 1)) fail_corrupt(where, "a rope base above 1 for yarn", concat(rope.theta));
  }
  if (rope.frequency_divisors.empty()) return;
  if (static_cast<Index>(rope.frequency_divisors.size()) != rope.rotary_dims / 2)
    fail_corrupt(where, concat(rope.rotary_dims / 2, " frequency divisors"),
                 concat(rope.frequency_divisors.size()));
  for (const float divisor : rope.frequency_divisors)
    check_positive(divisor, 1e12, "a frequency divisor", where);
}

// The position on the frequency axis at which the original context makes `rotations` turns (YaRN,
// eq. 19).
double yarn_dimension(const RopeSpec& rope, double rotations) {
  const double length = static_cast<double>(rope.original_context);
  return static_cast<double>(rope.rotary_dims) *
         std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

void scale_llama3(const RopeSpec& rope, std::vector<double>& inverse) {
  const double length = static_cast<double>(rope.original_context);
  for (double& frequency : inverse) {
    const double wave = 2 * std::numbers::pi / frequency;
    if (wave < length / rope.high_freq_factor) continue;
    if (wave > length / rope.low_freq_factor) {
      frequency /= rope.factor;
      continue;
    }
    const double t =
        (length / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    frequency = (1 - t) * frequency / rope.factor + t * frequency;
  }
}

void scale_yarn(const RopeSpec& rope, std::vector<double>& inverse) {
  const double low = std::max(std::floor(yarn_dimension(rope, rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(yarn_dimension(rope, rope.beta_slow)),
                         static_cast<double>(rope.rotary_dims - 1));
  if (low == high) high += 0.001;  // as in the reference, so that the ramp is defined
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = ramp * inverse[i] / rope.factor + (1 - ramp) * inverse[i];
  }
}

void validate_layers(const std::vector<Index>& values, const Architecture& a, Index low, Index high,
                     std::string_view what, const std::string& where) {
  if (!values.empty() && std::ssize(values) != a.layers)
    fail_corrupt(where, concat(what, " for each of ", a.layers, " layers"), concat(values.size()));
  for (const Index value : values) check_range(value, low, high, what, where);
}

void validate_not_negative(double value, double high, std::string_view what,
                           const std::string& where) {
  if (!(value >= 0 && value <= high))
    fail_corrupt(where, concat(what, " of 0 to ", high), concat(value));
}

void validate_traits(const Architecture& a, const std::string& where) {
  validate_layers(a.windows, a, 0, kMaxContext, "an attention window", where);
  validate_layers(a.layer_intermediate, a, 1, kMaxIntermediate, "an intermediate size", where);
  validate_layers(a.layer_heads, a, 1, kMaxHidden, "heads", where);
  for (const Index heads : a.layer_heads) {
    if (heads % a.kv_heads != 0)
      fail_corrupt(where, concat("a multiple of ", a.kv_heads, " heads in each layer"),
                   concat(heads));
  }
  check_positive(a.embedding_scale, 1e6, "a scale of embeddings", where);
  validate_not_negative(a.attention_scale, 1e6, "a scale of attention", where);
  validate_not_negative(a.attention_soft_cap, 1e6, "a cap of scores", where);
  validate_not_negative(a.logit_soft_cap, 1e6, "a cap of logits", where);
  if (a.window_rope) {
    validate_rope(*a.window_rope, a.head_dim, where);
    if (a.window_rope->rotary_dims != a.rope.rotary_dims ||
        a.window_rope->pairing != a.rope.pairing)
      fail_corrupt(where, concat(a.rope.rotary_dims, " rotary dimensions in every layer"),
                   concat(a.window_rope->rotary_dims));
  }
}

void validate_rank(const FactoredLayer& layer, const LayerProduct& product,
                   const std::string& where) {
  const bool is_sketched = layer.mode == FactoredLayer::Mode::Sketched;
  const Index most = std::min(product.inputs, product.outputs) * (is_sketched ? 2 : 1);
  check_range(layer.rank, 1, most, "a rank", where);
  if (!is_sketched) return;
  check_range(layer.terms, 1, layer.rank, "terms", where);
  if (layer.rank % (2 * layer.terms) != 0)
    fail_corrupt(where, concat("a rank that is a multiple of 2 * terms, ", 2 * layer.terms),
                 concat(layer.rank));
}

void validate_factored(const Architecture& a, const std::string& where) {
  if (a.factored.empty()) return;
  const bool any = std::ranges::all_of(a.factored, [](const FactoredLayer& layer) {
    return layer.mode == FactoredLayer::Mode::Projected;
  });
  if (!any && !a.has_default_traits())
    fail_unsupported(where, "factored layers in a model of the llama family", quote_name(a.family));
  if (!any && a.rope.pairing != RopePairing::HalfSplit)
    fail_corrupt(where, "half-split RoPE in a model with factored layers", "adjacent pairs");
  std::unordered_map<std::string, LayerProduct> by_name;
  for (Index layer = 0; layer < a.layers; ++layer) {
    for (LayerProduct& product : layer_products(a, layer)) {
      by_name.emplace(layer_name(layer, product.name), std::move(product));
    }
  }
  std::unordered_set<std::string_view> seen;
  for (const FactoredLayer& layer : a.factored) {
    const std::string key = concat(where, ": factored_layers: ", quote_name(layer.name));
    const auto found = by_name.find(layer.name);
    if (found == by_name.end())
      fail_corrupt(key, concat("This is not one of self_attn.qkv_proj, self_attn.o_proj, "
                               "mlp.gate_up_proj and mlp.down_proj of model.layers.0 to ",
                               a.layers - 1, "."));
    if (!seen.insert(layer.name).second) fail_corrupt(key, "The layer occurs twice.");
    validate_rank(layer, found->second, key);
  }
}

}  // namespace

Index Architecture::heads_of(Index layer) const {
  return layer_heads.empty() ? heads : layer_heads[static_cast<std::size_t>(layer)];
}

Index Architecture::intermediate_of(Index layer) const {
  return layer_intermediate.empty() ? intermediate_size
                                    : layer_intermediate[static_cast<std::size_t>(layer)];
}

Index Architecture::window_of(Index layer) const {
  return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)];
}

double Architecture::score_scale(Index layer) const {
  const double scale =
      attention_scale > 0 ? attention_scale : 1 / std::sqrt(static_cast<double>(head_dim));
  return inverse_layer_scale ? scale / static_cast<double>(layer + 1) : scale;
}

const RopeSpec& Architecture::rope_of(Index layer) const {
  return window_rope && window_of(layer) > 0 ? *window_rope : rope;
}

bool Architecture::has_default_traits() const {
  return norm == NormKind::Rms && norm_offset == 0 && pre_norms && !post_norms &&
         mlp == MlpKind::SiluGate && qk_norm == QkNorm::None && !learned_positions &&
         (output_bias || !attention_bias) && !window_rope && embedding_scale == 1 &&
         attention_scale == 0 && !inverse_layer_scale && attention_soft_cap == 0 &&
         logit_soft_cap == 0 &&
         std::ranges::all_of(windows, [](Index window) { return window == 0; });
}

Index Architecture::parameters() const {
  Index total = 0;
  for (const PlannedTensor& tensor : plan_tensors(*this)) total += tensor.rows * tensor.cols;
  return total;
}

Index Architecture::kv_bytes_per_token(Index bytes_per_element) const {
  return 2 * layers * kv_heads * head_dim * bytes_per_element;
}

void validate(const Architecture& a, const std::string& where) {
  check_range(a.hidden_size, 1, kMaxHidden, "a hidden size", where);
  check_range(a.intermediate_size, 1, kMaxIntermediate, "an intermediate size", where);
  check_range(a.layers, 1, kMaxLayers, "layers", where);
  check_range(a.vocab_size, 1, kMaxVocab, "a vocabulary size", where);
  check_range(a.context, 1, kMaxContext, "a context length", where);
  check_range(a.head_dim, kMinHeadDim, kMaxHeadDim, "a head dimension", where);
  if (a.head_dim % 2 != 0) fail_corrupt(where, "an even head dimension", concat(a.head_dim));
  check_range(a.heads, 1, kMaxHidden, "heads", where);
  check_range(a.kv_heads, 1, a.heads, "a number of key-value heads", where);
  if (a.heads % a.kv_heads != 0)
    fail_corrupt(where, concat("a number of key-value heads that divides ", a.heads),
                 concat(a.kv_heads));
  check_positive(a.norm_eps, 0.1, "a norm epsilon", where);
  if (!a.learned_positions) validate_rope(a.rope, a.head_dim, where);
  validate_traits(a, where);
  validate_factored(a, where);
  for (const text::TokenId id : a.stop_ids)
    check_range(id, 0, a.vocab_size - 1, "a stop token id", where);
  if (a.bos_id) check_range(*a.bos_id, 0, a.vocab_size - 1, "a BOS token id", where);
}

void extend_context(Architecture& a) {
  const double extended = a.rope.factor * static_cast<double>(a.rope.original_context);
  constexpr double kMost = 1 << 30;
  const bool is_sane = a.rope.factor > 1 && extended > 0 && extended <= kMost;
  if (a.rope.scaling != RopeScaling::Yarn || !is_sane) return;
  a.context = std::max(a.context, static_cast<Index>(extended));
}

RopeFrequencies rope_frequencies(const RopeSpec& rope) {
  RopeFrequencies out;
  out.inverse.resize(static_cast<std::size_t>(rope.rotary_dims / 2));
  for (std::size_t i = 0; i < out.inverse.size(); ++i)
    out.inverse[i] =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_dims));
  switch (rope.scaling) {
    case RopeScaling::None:
      break;
    case RopeScaling::Linear:
      for (double& frequency : out.inverse) frequency /= rope.factor;
      break;
    case RopeScaling::Llama3:
      scale_llama3(rope, out.inverse);
      break;
    case RopeScaling::Yarn:
      scale_yarn(rope, out.inverse);
      out.attention_factor = rope.attention_factor > 0 ? rope.attention_factor
                             : rope.factor > 1         ? 0.1 * std::log(rope.factor) + 1
                                                       : 1.0;
      break;
  }
  for (std::size_t i = 0; i < rope.frequency_divisors.size(); ++i)
    out.inverse[i] /= static_cast<double>(rope.frequency_divisors[i]);
  return out;
}

}  // namespace hone::model_io
