// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/lm_config.h"

#include <algorithm>
#include <array>

#include "hone/core/check.h"
#include "hone/train/optim/rule_table.h"

namespace hone::task {
namespace {

constexpr Index kFineTuningWindow = 512;
constexpr double kFineTuningRate = 0.02;  // as a share of the rate for new weights

void add_entries(ConfigEntries& entries, LmConfig::Model& model) {
  const EntryAdder add{entries};
  add("model.init", &model.init,
      "model to start training from: Hugging Face folder, GGUF or llama2.c file, or folder of a "
      "finished run; it sets the keys of [model] below and the tokenizer; empty: none");
  add("model.hidden_size", &model.hidden_size, "width of the residual stream");
  add("model.intermediate_size", &model.intermediate_size, "width of the gated MLP");
  add("model.layers", &model.layers, "decoder layers");
  add("model.heads", &model.heads, "query heads");
  add("model.kv_heads", &model.kv_heads,
      "key and value heads, a divisor of heads; 0: as many as heads");
  add("model.head_dim", &model.head_dim, "width of one head, even; 0: hidden_size / heads");
  add("model.context", &model.context, "context length of the exported model");
  add("model.rope_theta", &model.rope_theta, "base of the rotary position encoding");
  add("model.norm_eps", &model.norm_eps, "epsilon added to the mean square in RMSNorm");
  add("model.tied_embeddings", &model.tied_embeddings, "use the embedding matrix as output matrix");
  add("model.attention_bias", &model.attention_bias, "biases on q, k, v and o");
  add("model.mlp_bias", &model.mlp_bias, "biases on gate, up and down");
}

// `source` is the key that provides the tokenizer; empty if none does.
void add_entries(ConfigEntries& entries, LmConfig::Data& data, const std::string& source) {
  const EntryAdder add{entries};
  add("data.path", &data.path,
      "UTF-8 text file, folder of text files, or JSON lines with a field text; empty: the embedded "
      "story grammar",
      false);
  add("data.tokenizer", &data.tokenizer,
      "bpe: byte-level BPE trained on the training split; byte: one token per byte");
  add.ignored_if(!source.empty(), source);
  add("data.vocab_size", &data.vocab_size,
      "size of the BPE vocabulary, including the end-of-text token");
  add.ignored_if(!source.empty(), source);
  add.ignored_if(data.tokenizer == "byte", "data.tokenizer = byte");
  add("data.window", &data.window,
      "positions per training window, at most model.context; 0: model.context, but at most 512 "
      "with model.init. The memory of a step grows with it");
  add("data.windows", &data.windows,
      "document: each training window is one document, and longer documents are split every "
      "data.window tokens; stream: windows are cut from all documents as one stream. A single text "
      "is always a stream");
  add("data.stories", &data.stories, "number of training stories from the embedded grammar");
  add("data.held_out_stories", &data.held_out_stories,
      "number of held-out stories from the embedded grammar");
  add("data.validation_tokens", &data.validation_tokens,
      "held-out tokens per validation during training; the final validation uses all");
}

void add_entries(ConfigEntries& entries, LmConfig::Trainer& trainer) {
  add_entries(entries, trainer,
              {.samples = "windows",
               .seed = "seed of initial weights, data order and stories",
               .max_memory = "MiB that tensors may take. If a step would exceed it, all layers are "
                             "recomputed in the backward pass, then micro-batches are halved; if "
                             "that is not enough, the run ends. 0: no limit",
               .parts = "layer"});
  entries.push_back({"trainer.matmul", &trainer.matmul,
                     "library for f32 matrix products: onednn, mkl, or auto (onednn on AVX-512 "
                     "processors that are not Intel's)"});
}

void check_model(const LmConfig::Model& model) {
  check_range("model.hidden_size", model.hidden_size, 8, 65536);
  check_range("model.intermediate_size", model.intermediate_size, 8, 1 << 20);
  check_range("model.layers", model.layers, 1, 512);
  check_range("model.heads", model.heads, 1, 1024);
  check_range("model.kv_heads", model.kv_heads, 0, model.heads);
  check_range("model.context", model.context, 2, 1 << 20);
  check_range("model.rope_theta", model.rope_theta, 1, 1e12);
  check_range("model.norm_eps", model.norm_eps, 1e-12, 0.1);
  if (model.kv_heads != 0 && model.heads % model.kv_heads != 0) {
    fail_argument("model.kv_heads", concat("a divisor of ", model.heads), concat(model.kv_heads));
  }
  if (model.head_dim == 0 && model.hidden_size % model.heads != 0) {
    fail_argument("model.hidden_size", concat("a multiple of ", model.heads, " heads"),
                  concat(model.hidden_size));
  }
  const Index head_dim = model.head_dim == 0 ? model.hidden_size / model.heads : model.head_dim;
  if (head_dim < 8 || head_dim > 512 || head_dim % 2 != 0) {
    fail_argument("model.head_dim", "an even number from 8 to 512", concat(head_dim));
  }
}

void check_data(const LmConfig::Data& data, Index context) {
  if (data.window != 0) check_range("data.window", data.window, 2, context);
  check_choice("data.tokenizer", data.tokenizer, std::array<std::string_view, 2>{"bpe", "byte"});
  check_choice("data.windows", data.windows, std::array<std::string_view, 2>{"document", "stream"});
  check_range("data.vocab_size", data.vocab_size, 258, 1 << 20);
  check_range("data.stories", data.stories, 1, 100'000'000);
  check_range("data.held_out_stories", data.held_out_stories, 1, 1'000'000);
  check_range("data.validation_tokens", data.validation_tokens, 2, Index{1} << 40);
}

void check_trainer(const LmConfig::Trainer& trainer) {
  check_config(trainer);
  check_choice("trainer.matmul", trainer.matmul,
               std::array<std::string_view, 3>{"auto", "onednn", "mkl"});
}

}  // namespace

ConfigEntries config_entries(LmConfig& config) {
  ConfigEntries entries;
  add_entries(entries, config.model);
  add_entries(entries, config.data,
              !config.model.init.empty()        ? "model.init"
              : !config.distill.teacher.empty() ? "distill.teacher"
                                                : "");
  trainer::add_entries(entries, config.distill,
                       "what model.init may be, whose tokenizer the new model gets");
  add_entries(entries, config.optim, lm_rules());
  add_entries(entries, config.lr, lm_rules(), "; with model.init 1/50 of that");
  add_entries(entries, config.trainer);
  return entries;
}

optim::RuleTable lm_rules() {
  static const std::vector<optim::RuleDefaults> rules = optim::defaults_of(&optim::RuleEntry::lm);
  return rules;
}

Index window_of(const LmConfig& config) {
  if (config.data.window > 0) return config.data.window;
  return config.model.init.empty() ? config.model.context
                                   : std::min(config.model.context, kFineTuningWindow);
}

double peak_of(const LmConfig& config) {
  const double peak = peak_of(config.optim, config.lr, lm_rules());
  return config.lr.peak == 0 && !config.model.init.empty() ? kFineTuningRate * peak : peak;
}

void check_config(const LmConfig& config) {
  check_model(config.model);
  check_data(config.data, config.model.context);
  check_config(config.distill);
  check_config(config.optim, lm_rules());
  check_config(config.lr);
  check_trainer(config.trainer);
  check_given(config);
}

model_io::Architecture make_architecture(const LmConfig& config, Index vocab_size) {
  const LmConfig::Model& model = config.model;
  model_io::Architecture out;
  out.vocab_size = vocab_size;
  out.hidden_size = model.hidden_size;
  out.intermediate_size = model.intermediate_size;
  out.layers = model.layers;
  out.heads = model.heads;
  out.kv_heads = model.kv_heads == 0 ? model.heads : model.kv_heads;
  out.head_dim = model.head_dim == 0 ? model.hidden_size / model.heads : model.head_dim;
  out.context = model.context;
  out.norm_eps = model.norm_eps;
  out.tied_embeddings = model.tied_embeddings;
  out.attention_bias = model.attention_bias;
  out.mlp_bias = model.mlp_bias;
  out.rope.theta = model.rope_theta;
  out.rope.rotary_dims = out.head_dim;
  return out;
}

LmConfig with_architecture(LmConfig config, const model_io::Architecture& architecture) {
  LmConfig out = config;
  out.model = {.init = config.model.init,
               .hidden_size = architecture.hidden_size,
               .intermediate_size = architecture.intermediate_size,
               .layers = architecture.layers,
               .heads = architecture.heads,
               .kv_heads = architecture.kv_heads,
               .head_dim = architecture.head_dim,
               .context = architecture.context,
               .rope_theta = architecture.rope.theta,
               .norm_eps = architecture.norm_eps,
               .tied_embeddings = architecture.tied_embeddings,
               .attention_bias = architecture.attention_bias,
               .mlp_bias = architecture.mlp_bias};
  // What 0 stands for in this model.
  if (config.model.kv_heads == 0) config.model.kv_heads = architecture.heads;
  if (config.model.head_dim == 0) {
    config.model.head_dim = architecture.hidden_size / architecture.heads;
  }
  if (config.given.contains("model.context")) {
    check_range("model.context", config.model.context, 2, architecture.context);
    out.model.context = config.model.context;
  }
  const ConfigEntries given = config_entries(config), of_model = config_entries(out);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string wanted = value_of(of_model[i]), got = value_of(given[i]);
    if (wanted == got || !config.given.contains(given[i].name)) continue;
    fail_argument(given[i].name, concat(wanted, ", that of ", config.model.init), got);
  }
  return out;
}

}  // namespace hone::task
