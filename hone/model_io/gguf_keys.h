// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <string_view>

#include "hone/model_io/architecture.h"

namespace hone::model_io {

// Keys that both the reader and the writer of GGUF models use.
inline constexpr std::string_view kBosKey = "tokenizer.ggml.bos_token_id";
inline constexpr std::array<std::string_view, 3> kStopKeys{
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
// GGUF's attention factor for Yarn multiplies the default of 0.1 ln(factor) + 1; Hugging Face's
// replaces it.
inline constexpr std::string_view kAttentionFactor = "rope.scaling.attn_factor";
inline double yarn_default_factor(const RopeSpec& rope) {
  return rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1 : 1.0;
}
// Below the name of the architecture: the attention window, and the RoPE base of layers that have
// one.
inline constexpr std::string_view kWindowKey = "attention.sliding_window";
inline constexpr std::string_view kWindowTheta = "rope.freq_base_swa";
// hone's own keys for what GGUF has none: the family where several share an architecture, windows
// of single layers, and scores that are divided by the number of the layer.
inline constexpr std::string_view kHoneFamily = "hone.family";
inline constexpr std::string_view kHoneWindows = "hone.attention.windows";
inline constexpr std::string_view kHoneInverseScale = "hone.attention.inverse_layer_scale";
// hone's own keys for parts of a tokenizer: Unicode NFC, and the ids of added tokens with a flag.
inline constexpr std::string_view kHoneNfc = "hone.tokenizer.nfc";
inline constexpr std::string_view kHoneLstrip = "hone.tokenizer.lstrip";
inline constexpr std::string_view kHoneRstrip = "hone.tokenizer.rstrip";
inline constexpr std::string_view kHoneSingleWord = "hone.tokenizer.single_word";
inline constexpr std::string_view kHoneNormalized = "hone.tokenizer.normalized";
// hone's own keys for the formula behind rope_freqs.weight. Other programs ignore them.
inline constexpr std::string_view kHoneRopeFactor = "hone.rope.llama3.factor";
inline constexpr std::string_view kHoneRopeLow = "hone.rope.llama3.low_freq_factor";
inline constexpr std::string_view kHoneRopeHigh = "hone.rope.llama3.high_freq_factor";
inline constexpr std::string_view kHoneRopeContext = "hone.rope.llama3.original_context_length";

}  // namespace hone::model_io
