// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/gguf_names.h"

#include <array>
#include <utility>

#include "hone/core/check.h"

namespace hone::model_io {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;  // GGUF, Hugging Face

constexpr std::array<NamePair, 3> kWholeNames{
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};
constexpr std::array<NamePair, 9> kLayerNames{{{"attn_norm", "input_layernorm"},
                                               {"attn_q", "self_attn.q_proj"},
                                               {"attn_k", "self_attn.k_proj"},
                                               {"attn_v", "self_attn.v_proj"},
                                               {"attn_output", "self_attn.o_proj"},
                                               {"ffn_norm", "post_attention_layernorm"},
                                               {"ffn_gate", "mlp.gate_proj"},
                                               {"ffn_up", "mlp.up_proj"},
                                               {"ffn_down", "mlp.down_proj"}}};
constexpr std::string_view kGgufLayer = "blk.", kHuggingFaceLayer = "model.layers.";

template <std::size_t N>
std::string_view translate(const std::array<NamePair, N>& table, std::string_view name,
                           bool from_gguf) {
  for (const auto& [gguf, hugging_face] : table) {
    if ((from_gguf ? gguf : hugging_face) == name) return from_gguf ? hugging_face : gguf;
  }
  return {};
}

std::string translate_name(std::string_view name, bool from_gguf) {
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return {};
  std::string_view stem = name.substr(0, dot);
  const std::string_view prefix = from_gguf ? kGgufLayer : kHuggingFaceLayer;
  if (!stem.starts_with(prefix)) {
    const std::string_view whole = translate(kWholeNames, stem, from_gguf);
    return whole.empty() ? std::string() : concat(whole, suffix);
  }
  stem.remove_prefix(prefix.size());
  const auto end = stem.find('.');
  if (end == std::string_view::npos || end == 0 ||
      stem.substr(0, end).find_first_not_of("0123456789") != std::string_view::npos)
    return {};
  const std::string_view part = translate(kLayerNames, stem.substr(end + 1), from_gguf);
  if (part.empty()) return {};
  return concat(from_gguf ? kHuggingFaceLayer : kGgufLayer, stem.substr(0, end), ".", part, suffix);
}

}  // namespace

std::string to_hugging_face_name(std::string_view gguf_name) {
  return translate_name(gguf_name, true);
}

std::string to_gguf_name(std::string_view hugging_face_name) {
  return translate_name(hugging_face_name, false);
}

}  // namespace hone::model_io
