// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/llama2c/layout.h"

namespace hone::model_io {

std::vector<Llama2cBlock> llama2c_blocks(const Architecture& a, bool legacy) {
  const Index dim = a.hidden_size, hidden = a.intermediate_size, kv = a.kv_heads * a.head_dim;
  const Llama2cBlock embedding{"model.embed_tokens.weight", false, a.vocab_size, dim, false};
  const Llama2cBlock norm_att{"input_layernorm.weight", true, 1, dim, true};
  const Llama2cBlock norm_ffn{"post_attention_layernorm.weight", true, 1, dim, true};
  const Llama2cBlock norm_final{"model.norm.weight", false, 1, dim, true};
  const std::vector<Llama2cBlock> attention{{"self_attn.q_proj.weight", true, dim, dim, false},
                                            {"self_attn.k_proj.weight", true, kv, dim, false},
                                            {"self_attn.v_proj.weight", true, kv, dim, false},
                                            {"self_attn.o_proj.weight", true, dim, dim, false}};
  const std::vector<Llama2cBlock> ffn{{"mlp.gate_proj.weight", true, hidden, dim, false},
                                      {"mlp.down_proj.weight", true, dim, hidden, false},
                                      {"mlp.up_proj.weight", true, hidden, dim, false}};
  std::vector<Llama2cBlock> blocks;
  const auto append = [&](const std::vector<Llama2cBlock>& more) {
    blocks.insert(blocks.end(), more.begin(), more.end());
  };
  if (legacy) {
    append({embedding, norm_att});
    append(attention);
    append({norm_ffn});
    append(ffn);
    append({norm_final});
  } else {
    append({norm_att, norm_ffn, norm_final, embedding});
    append(attention);
    append(ffn);
  }
  return blocks;
}

Index llama2c_table_values(const Architecture& a) { return 2 * a.context * (a.head_dim / 2); }

}  // namespace hone::model_io
