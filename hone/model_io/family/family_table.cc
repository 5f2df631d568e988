// SPDX-License-Identifier: Apache-2.0
// The rows of the table of families. A new family that computes what another one does, under other
// names, is a row here and nothing else.
#include "hone/model_io/family/family.h"

#include <vector>

namespace hone::model_io {
namespace {

constexpr TensorRow kEmbedding{{"model.embed_tokens"}, "model.embed_tokens", "token_embd"};
constexpr TensorRow kHead{{"lm_head"}, "lm_head", "output"};
constexpr std::array<TensorRow, 3> kWhole{
    {kEmbedding, {{"model.norm"}, "model.norm", "output_norm"}, kHead}};

constexpr TensorRow kQ{{"self_attn.q_proj"}, "self_attn.q_proj", "attn_q"};
constexpr TensorRow kK{{"self_attn.k_proj"}, "self_attn.k_proj", "attn_k"};
constexpr TensorRow kV{{"self_attn.v_proj"}, "self_attn.v_proj", "attn_v"};
constexpr TensorRow kO{{"self_attn.o_proj"}, "self_attn.o_proj", "attn_output"};
constexpr TensorRow kQNorm{{"self_attn.q_norm"}, "self_attn.q_norm", "attn_q_norm"};
constexpr TensorRow kKNorm{{"self_attn.k_norm"}, "self_attn.k_norm", "attn_k_norm"};
constexpr TensorRow kGate{{"mlp.gate_proj"}, "mlp.gate_proj", "ffn_gate"};
constexpr TensorRow kUp{{"mlp.up_proj"}, "mlp.up_proj", "ffn_up"};
constexpr TensorRow kDown{{"mlp.down_proj"}, "mlp.down_proj", "ffn_down"};
constexpr TensorRow kAttentionNorm{{"input_layernorm"}, "input_layernorm", "attn_norm"};
constexpr TensorRow kMlpNorm{{"post_attention_layernorm"}, "post_attention_layernorm", "ffn_norm"};

// Llama's names, with norms of q and k where a family has them.
constexpr std::array<TensorRow, 11> kLlamaLayer{
    {kAttentionNorm, kQ, kK, kV, kQNorm, kKNorm, kO, kMlpNorm, kGate, kUp, kDown}};

// Where there are norms after a block, "post_attention_layernorm" is the one after attention.
constexpr TensorRow kAttentionPostNorm{
    {"self_attn.output_norm"}, "post_attention_layernorm", "post_attention_norm"};
constexpr TensorRow kMlpPostNorm{
    {"mlp.output_norm"}, "post_feedforward_layernorm", "post_ffw_norm"};
constexpr std::array<TensorRow, 13> kGemmaLayer{
    {kAttentionNorm,
     kQ,
     kK,
     kV,
     kQNorm,
     kKNorm,
     kO,
     kAttentionPostNorm,
     {{"post_attention_layernorm"}, "pre_feedforward_layernorm", "ffn_norm"},
     kGate,
     kUp,
     kDown,
     kMlpPostNorm}};
constexpr std::array<TensorRow, 11> kOlmo2Layer{
    {kQ, kK, kV, kQNorm, kKNorm, kO, kAttentionPostNorm, kGate, kUp, kDown, kMlpPostNorm}};

constexpr std::array<TensorRow, 6> kPhi3Layer{
    {kAttentionNorm,
     {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
      "self_attn.qkv_proj",
      "attn_qkv"},
     kO,
     kMlpNorm,
     {{"mlp.gate_proj", "mlp.up_proj"}, "mlp.gate_up_proj", "ffn_up"},
     kDown}};

constexpr std::array<TensorRow, 4> kGpt2Whole{
    {{{"model.embed_tokens"}, "transformer.wte", "token_embd"},
     {{"model.embed_positions"}, "transformer.wpe", "position_embd"},
     {{"model.norm"}, "transformer.ln_f", "output_norm"},
     kHead}};
constexpr std::array<TensorRow, 6> kGpt2Layer{
    {{{"input_layernorm"}, "ln_1", "attn_norm"},
     {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
      "attn.c_attn",
      "attn_qkv",
      true},
     {{"self_attn.o_proj"}, "attn.c_proj", "attn_output", true},
     {{"post_attention_layernorm"}, "ln_2", "ffn_norm"},
     {{"mlp.up_proj"}, "mlp.c_fc", "ffn_up", true},
     {{"mlp.down_proj"}, "mlp.c_proj", "ffn_down", true}}};

constexpr std::array<std::string_view, 1> kRopeBuffers{"rotary_emb.inv_freq"};
constexpr std::array<std::string_view, 2> kGpt2Buffers{".attn.bias", ".attn.masked_bias"};

// The parts that most families share.
Family llama_like(std::string_view name, std::string_view model_class, std::string_view gguf) {
  Family family{.name = name,
                .model_class = model_class,
                .gguf = gguf,
                .whole = kWhole,
                .layer = kLlamaLayer};
  family.ignorable = kRopeBuffers;
  return family;
}

Family llama() {
  Family family = llama_like("llama", "LlamaForCausalLM", "llama");
  family.gguf_pairing = RopePairing::Adjacent;
  family.attention_bias = family.mlp_bias = BiasRule::Key;
  return family;
}

Family mistral() {
  Family family = llama_like("mistral", "MistralForCausalLM", "llama");
  family.gguf_pairing = RopePairing::Adjacent;
  family.window = WindowRule::All;
  family.defaults.window = 4096;
  return family;
}

Family qwen2() {
  Family family = llama_like("qwen2", "Qwen2ForCausalLM", "qwen2");
  family.attention_bias = BiasRule::Always;
  family.output_bias = false;
  family.window = WindowRule::Switch;
  family.defaults.window = 4096;
  return family;
}

Family qwen3() {
  Family family = llama_like("qwen3", "Qwen3ForCausalLM", "qwen3");
  family.attention_bias = BiasRule::Key;
  family.qk_norm = QkNorm::Head;
  family.window = WindowRule::Switch;
  family.defaults.window = 4096;
  family.defaults.head_dim = 128;
  return family;
}

Family gpt2() {
  Family family{.name = "gpt2",
                .model_class = "GPT2LMHeadModel",
                .gguf = "gpt2",
                .whole = kGpt2Whole,
                .layer = kGpt2Layer,
                .layer_prefix = "transformer.h.",
                .model_prefix = "transformer.",
                .ignorable = kGpt2Buffers};
  family.keys = {.hidden = "n_embd",
                 .intermediate = "n_inner",
                 .layers = "n_layer",
                 .heads = "n_head",
                 .kv_heads = "",
                 .head_dim = "",
                 .context = "n_positions",
                 .eps = "layer_norm_epsilon",
                 .activation = "activation_function"};
  family.defaults = {.norm_eps = 1e-5, .context = 1024, .tied = true};
  family.norm = NormKind::Layer;
  family.mlp = MlpKind::GeluTanh;
  family.attention_bias = family.mlp_bias = BiasRule::Always;
  family.learned_positions = true;
  family.has_score_switches = true;
  return family;
}

Family gemma2() {
  Family family = llama_like("gemma2", "Gemma2ForCausalLM", "gemma2");
  family.layer = kGemmaLayer;
  family.keys.activation = "hidden_activation";
  family.hugging_face_norm_offset = 1;
  family.post_norms = true;
  family.mlp = MlpKind::GeluTanhGate;
  family.attention_bias = BiasRule::Key;
  family.scales_embedding = family.has_query_scalar = family.has_soft_caps = true;
  family.window = WindowRule::Period;
  family.window_period = 2;
  family.width_scale_layers = 46;
  family.defaults = {.context = 8192,
                     .head_dim = 256,
                     .window = 4096,
                     .tied = true,
                     .query_scalar = 256,
                     .attention_cap = 50,
                     .logit_cap = 30};
  return family;
}

Family gemma3() {
  Family family = gemma2();
  family.name = "gemma3_text";
  family.model_class = "Gemma3ForCausalLM";
  family.gguf = "gemma3";
  family.qk_norm = QkNorm::Head;
  family.has_window_rope = true;
  family.window_period = 6;
  family.width_scale_layers = 62;
  family.defaults.context = 131072;
  family.defaults.attention_cap = family.defaults.logit_cap = 0;
  family.defaults.rope_theta = 1e6;
  return family;
}

Family phi3() {
  Family family = llama_like("phi3", "Phi3ForCausalLM", "phi3");
  family.layer = kPhi3Layer;
  family.has_partial_rotation = true;
  family.window = WindowRule::All;
  family.defaults.norm_eps = 1e-5;
  family.defaults.context = 4096;
  return family;
}

Family olmo2() {
  Family family = llama_like("olmo2", "Olmo2ForCausalLM", "olmo2");
  family.layer = kOlmo2Layer;
  family.pre_norms = false;
  family.post_norms = true;
  family.qk_norm = QkNorm::Row;
  family.attention_bias = BiasRule::Key;
  family.defaults.norm_eps = 1e-5;
  return family;
}

}  // namespace

std::span<const Family> families() {
  // Where rows share a GGUF architecture, the first one is for files that say nothing else.
  static const std::vector<Family> kFamilies{llama(),  mistral(), qwen2(), qwen3(), gpt2(),
                                             gemma2(), gemma3(),  phi3(),  olmo2()};
  return kFamilies;
}

}  // namespace hone::model_io
