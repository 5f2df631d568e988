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
// others are signs that the seed draws (hone::nn::FactoredLinear). Projected stores a, and bᵀ as
// the weights [rows, rank] of the parts of the product, so that both can be quantized; any family
// may have it, but it is not trained.
struct FactoredLayer {
  enum class Mode { LowRank, Sketched, Projected };

  // "model.layers.<i>." and self_attn.qkv_proj, self_attn.o_proj, mlp.gate_up_proj or mlp.down_proj
  std::string name;
  Mode mode = Mode::LowRank;
  Index rank = 0;          // of the weight; if sketched, a multiple of 2 * terms
  Index terms = 1;         // if sketched
  std::uint64_t seed = 0;  // if sketched

  Index width() const { return mode == Mode::Sketched ? rank / 2 : rank; }  // rows in the file
  friend bool operator==(const FactoredLayer&, const FactoredLayer&) = default;
};

// RMSNorm: y = w x / sqrt(mean x² + eps). LayerNorm: y = w (x - mean) / sqrt(variance + eps) + b.
enum class NormKind { Rms, Layer };
// What stands between the two products of an MLP: silu(gate) * up, gelu(gate) * up or gelu(up),
// with gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))).
enum class MlpKind { SiluGate, GeluTanhGate, GeluTanh };
// A norm of q and k before RoPE: none, of each head, or of all heads of a token together.
enum class QkNorm { None, Head, Row };

// The architecture of a decoder-only transformer, whatever its file format. Names and defaults are
// those of Hugging Face's config.json. A layer computes, with the traits below,
//   h += attention_post_norm(attention(attention_norm(h)));  h += mlp_post_norm(mlp(mlp_norm(h))).
struct Architecture {
  std::string family = "llama";  // a name of family/family.h; only readers and writers ask for it
  Index vocab_size = 0, hidden_size = 0, intermediate_size = 0, layers = 0;
  Index heads = 0, kv_heads = 0, head_dim = 0, context = 0;
  double norm_eps = 1e-5;
  bool tied_embeddings = false;
  bool attention_bias = false;  // of q, k and v, and with output_bias that of o
  bool output_bias = true;
  bool mlp_bias = false;
  RopeSpec rope;
  std::vector<text::TokenId> stop_ids;  // sorted, unique
  std::optional<text::TokenId> bos_id;
  std::vector<FactoredLayer> factored;

  // Traits of families. The defaults are those of Llama.
  NormKind norm = NormKind::Rms;
  double norm_offset = 0;   // added to the weights of norms when they are used
  bool pre_norms = true;    // of what attention and MLP read
  bool post_norms = false;  // of what they yield, before it is added
  MlpKind mlp = MlpKind::SiluGate;
  QkNorm qk_norm = QkNorm::None;
  bool learned_positions = false;       // a row per position is added to the embedding; no RoPE
  std::vector<Index> windows;           // of each layer: positions that a token sees, 0 for all
  std::optional<RopeSpec> window_rope;  // of layers with a window, if it differs from rope
  double embedding_scale = 1;
  double attention_scale = 0;                         // of scores; 0: 1 / sqrt(head_dim)
  bool inverse_layer_scale = false;                   // scores of layer i are also divided by i + 1
  double attention_soft_cap = 0, logit_soft_cap = 0;  // x becomes cap tanh(x / cap); 0: x

  // Widths of layers that differ; empty if all have `heads` and `intermediate_size`.
  std::vector<Index> layer_heads, layer_intermediate;

  Index heads_of(Index layer) const;
  Index intermediate_of(Index layer) const;
  Index window_of(Index layer) const;     // 0: none
  double score_scale(Index layer) const;  // by which q · k is multiplied
  const RopeSpec& rope_of(Index layer) const;
  // Whether every trait is Llama's, and whether all layers have the same widths, as training and
  // llama2.c require.
  bool has_default_traits() const;
  bool has_uniform_widths() const { return layer_heads.empty() && layer_intermediate.empty(); }

  Index parameters() const;
  Index kv_bytes_per_token(Index bytes_per_element) const;
};

// Checks ranges and divisibility. Throws Error{CorruptFile} that names the file `where`.
void validate(const Architecture& architecture, const std::string& where);

// YaRN extends the context to `factor` times the length that the model was trained for. Raises the
// context to that where it is shorter.
void extend_context(Architecture& architecture);

// The [rotary_dims/2] inverse frequencies after scaling, and Yarn's factor for cos and sin.
struct RopeFrequencies {
  std::vector<double> inverse;
  double attention_factor = 1;
};
RopeFrequencies rope_frequencies(const RopeSpec& rope);

}  // namespace hone::model_io
