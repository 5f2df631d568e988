// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/model_io/hf_config.h"

namespace hone::test {

// Small models with every trait that nn::Llama computes beyond Llama's, as their config.json has
// it. Windows are shorter than the context.
inline std::vector<model_io::Architecture> trainable_architectures() {
  constexpr std::string_view kSizes =
      R"({"vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
          "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2})";
  constexpr std::array<std::string_view, 8> kFamilies{
      R"({"architectures": ["MistralForCausalLM"], "sliding_window": 8})",
      R"({"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": true})",
      R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true, "sliding_window": 8,
          "max_window_layers": 1})",
      R"({"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": true})",
      R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": true})",
      R"({"architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
          "sliding_window": 6, "query_pre_attn_scalar": 24, "rope_theta": 10000.0,
          "rope_local_base_freq": 100.0,
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})",
      R"({"architectures": ["Phi3ForCausalLM"], "head_dim": 8, "sliding_window": null})",
      R"({"architectures": ["Olmo2ForCausalLM"]})"};
  std::vector<model_io::Architecture> out;
  for (const std::string_view family : kFamilies) {
    Json config = parse_json(kSizes, "sizes");
    config.update(parse_json(family, "family"));
    out.push_back(model_io::read_hf_config(config, Json::object(), "config.json"));
  }
  return out;
}

// "qwen2 with windows, tied", for messages.
inline std::string text_of(const model_io::Architecture& a) {
  return a.family + (a.windows.empty() ? "" : " with windows") +
         (a.tied_embeddings ? ", tied" : "") + (a.attention_bias ? ", biases" : "");
}

}  // namespace hone::test
