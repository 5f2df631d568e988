// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hone/core/index.h"
#include "hone/text/tokenizer.h"

namespace hone::model_io {

enum class RopePairing { HalfSplit, Adjacent };  // rotates dims (i, i+d/2) or (2i, 2i+1) together
enum class RopeScaling { None, Linear, Llama3, Yarn };

struct RopeSpec {
  double theta = 10000;
  Index rotary_dims = 0;  // leading dims of a head that are rotated; even, ≤ head_dim
  RopePairing pairing = RopePairing::HalfSplit;
  RopeScaling scaling = RopeScaling::None;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  Index original_context = 0;
  double attention_factor = 0;  // Yarn; 0 means 0.1 ln(factor) + 1
  double beta_fast = 32, beta_slow = 1;
  std::vector<float> frequency_divisors;  // GGUF rope_freqs; empty if none
};

// A product of the model that is two thin matrices instead of one weight: y = (x aᵀ) b with
// a [rank, in] and b [rank, out]. LowRank stores both. Sketched averages 2 * terms products; the
// file holds half of the rows of each matrix, s1 [rank / 2, in] and s2 [rank / 2, out], and the
// others are signs that the seed draws (hone::nn::FactoredLinear).
struct FactoredLayer {
  enum class Mode { LowRank, Sketched };

  // "model.layers.<i>." and self_attn.qkv_proj, self_attn.o_proj, mlp.gate_up_proj or mlp.down_proj
  std::string name;
  Mode mode = Mode::LowRank;
  Index rank = 0;          // of the weight; if sketched, a multiple of 2 * terms
  Index terms = 1;         // if sketched
  std::uint64_t seed = 0;  // if sketched

  Index width() const { return mode == Mode::Sketched ? rank / 2 : rank; }  // rows in the file
  friend bool operator==(const FactoredLayer&, const FactoredLayer&) = default;
};

// The architecture of a decoder-only transformer, whatever its file format. Names and defaults are
// those of Hugging Face's config.json.
struct Architecture {
  std::string family = "llama";  // the only known family
  Index vocab_size = 0, hidden_size = 0, intermediate_size = 0, layers = 0;
  Index heads = 0, kv_heads = 0, head_dim = 0, context = 0;
  double norm_eps = 1e-5;
  bool tied_embeddings = false, attention_bias = false, mlp_bias = false;
  RopeSpec rope;
  std::vector<text::TokenId> stop_ids;  // sorted, unique
  std::optional<text::TokenId> bos_id;
  std::vector<FactoredLayer> factored;
  // By layer: how many of the last positions, its own included, a token attends to; 0: all. Empty
  // if that holds for every layer.
  std::vector<Index> windows;

  Index window_of(Index layer) const {
    return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)];
  }
  Index parameters() const;
  Index kv_bytes_per_token(Index bytes_per_element) const;
};

// Checks ranges and divisibility. Throws Error{CorruptFile} that names the file `where`.
void validate(const Architecture& architecture, const std::string& where);

// The [rotary_dims/2] inverse frequencies after scaling, and Yarn's factor for cos and sin.
struct RopeFrequencies {
  std::vector<double> inverse;
  double attention_factor = 1;
};
RopeFrequencies rope_frequencies(const RopeSpec& rope);

}  // namespace hone::model_io
