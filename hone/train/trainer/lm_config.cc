// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/lm_config.h"

#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/sha256.h"
#include "hone/train/trainer/metrics_sinks.h"

namespace hone::trainer {
namespace {

template <auto Section, auto Member>
ConfigField field_of(LmConfig& config) {
  return &(config.*Section.*Member);
}

constexpr auto kKeys = std::to_array<ConfigKey>({
    {"model.hidden_size", &field_of<&LmConfig::model, &LmConfig::Model::hidden_size>,
     "width of the residual stream"},
    {"model.intermediate_size", &field_of<&LmConfig::model, &LmConfig::Model::intermediate_size>,
     "width of the gated MLP"},
    {"model.layers", &field_of<&LmConfig::model, &LmConfig::Model::layers>, "decoder layers"},
    {"model.heads", &field_of<&LmConfig::model, &LmConfig::Model::heads>, "query heads"},
    {"model.kv_heads", &field_of<&LmConfig::model, &LmConfig::Model::kv_heads>,
     "key and value heads, a divisor of heads; 0: as many as heads"},
    {"model.head_dim", &field_of<&LmConfig::model, &LmConfig::Model::head_dim>,
     "width of one head, even; 0: hidden_size / heads"},
    {"model.context", &field_of<&LmConfig::model, &LmConfig::Model::context>,
     "positions of a training window and of the exported model"},
    {"model.rope_theta", &field_of<&LmConfig::model, &LmConfig::Model::rope_theta>,
     "base of the rotary position encoding"},
    {"model.norm_eps", &field_of<&LmConfig::model, &LmConfig::Model::norm_eps>,
     "added to the mean square in RMSNorm"},
    {"model.tied_embeddings", &field_of<&LmConfig::model, &LmConfig::Model::tied_embeddings>,
     "output matrix = embedding matrix"},
    {"model.attention_bias", &field_of<&LmConfig::model, &LmConfig::Model::attention_bias>,
     "biases on q, k, v and o"},
    {"model.mlp_bias", &field_of<&LmConfig::model, &LmConfig::Model::mlp_bias>,
     "biases on gate, up and down"},
    {"data.path", &field_of<&LmConfig::data, &LmConfig::Data::path>,
     "UTF-8 text file, folder of text files, or JSON lines with a field text; empty: the "
     "embedded story grammar",
     false},
    {"data.tokenizer", &field_of<&LmConfig::data, &LmConfig::Data::tokenizer>,
     "bpe: byte-level BPE trained on the training part; byte: one token per byte"},
    {"data.vocab_size", &field_of<&LmConfig::data, &LmConfig::Data::vocab_size>,
     "tokens of the BPE vocabulary, the end-of-text token included; unread with byte"},
    {"data.windows", &field_of<&LmConfig::data, &LmConfig::Data::windows>,
     "document: a training window is one document, a longer one is cut every context tokens; "
     "stream: windows are cut from all documents as one stream. A single text is always a stream"},
    {"data.stories", &field_of<&LmConfig::data, &LmConfig::Data::stories>,
     "training stories of the embedded grammar"},
    {"data.held_out_stories", &field_of<&LmConfig::data, &LmConfig::Data::held_out_stories>,
     "held-out stories of the embedded grammar"},
    {"data.validation_tokens", &field_of<&LmConfig::data, &LmConfig::Data::validation_tokens>,
     "held-out tokens of a validation during training; the last one takes all"},
    {"optim.name", &field_of<&LmConfig::optim, &LmConfig::Optim::name>,
     "adamw, tam, adatamw or sgd"},
    {"optim.weight_decay", &field_of<&LmConfig::optim, &LmConfig::Optim::weight_decay>,
     "of matrices; norm gains and biases have none. Decoupled for adamw and adatamw, L2 for "
     "tam and sgd"},
    {"optim.beta1", &field_of<&LmConfig::optim, &LmConfig::Optim::beta1>,
     "first-moment decay of adamw"},
    {"optim.beta2", &field_of<&LmConfig::optim, &LmConfig::Optim::beta2>,
     "second-moment decay of adamw and adatamw"},
    {"optim.eps", &field_of<&LmConfig::optim, &LmConfig::Optim::eps>,
     "added to the root of the second moment, and to TAM's damping"},
    {"optim.momentum", &field_of<&LmConfig::optim, &LmConfig::Optim::momentum>,
     "momentum of sgd, tam and adatamw"},
    {"optim.decay_rate", &field_of<&LmConfig::optim, &LmConfig::Optim::decay_rate>,
     "decay of TAM's smoothed correlation (tam, adatamw)"},
    {"lr.schedule", &field_of<&LmConfig::lr, &LmConfig::Lr::schedule>,
     "cosine or linear: from peak to final_ratio of it after the warm-up; constant: peak after the "
     "warm-up; one_cycle: from peak/25 to peak, then to final_ratio of it"},
    {"lr.peak", &field_of<&LmConfig::lr, &LmConfig::Lr::peak>,
     "highest learning rate; 0: adamw 0.004, adatamw 0.0004, tam 0.2, sgd 0.1"},
    {"lr.warm_up_steps", &field_of<&LmConfig::lr, &LmConfig::Lr::warm_up_steps>,
     "steps of linear warm-up; unread with one_cycle"},
    {"lr.final_ratio", &field_of<&LmConfig::lr, &LmConfig::Lr::final_ratio>,
     "learning rate at the end, as a share of peak; unread with constant"},
    {"lr.rise", &field_of<&LmConfig::lr, &LmConfig::Lr::rise>,
     "share of the steps in which one_cycle rises; unread by the others"},
    {"lr.cycle_momentum", &field_of<&LmConfig::lr, &LmConfig::Lr::cycle_momentum>,
     "one_cycle moves momentum (adamw: beta1) from 0.95 to 0.85 and back instead of keeping that "
     "of [optim]; unread by the others"},
    {"trainer.steps", &field_of<&LmConfig::trainer, &LmConfig::Trainer::steps>,
     "optimiser steps; --minutes replaces it"},
    {"trainer.micro_batch", &field_of<&LmConfig::trainer, &LmConfig::Trainer::micro_batch>,
     "windows per forward pass"},
    {"trainer.accumulation_steps",
     &field_of<&LmConfig::trainer, &LmConfig::Trainer::accumulation_steps>,
     "forward passes per optimiser step"},
    {"trainer.clip_norm", &field_of<&LmConfig::trainer, &LmConfig::Trainer::clip_norm>,
     "limit of the global gradient norm; 0: none"},
    {"trainer.seed", &field_of<&LmConfig::trainer, &LmConfig::Trainer::seed>,
     "of initial weights, data order and stories"},
    {"trainer.validate_every", &field_of<&LmConfig::trainer, &LmConfig::Trainer::validate_every>,
     "steps between validations; 0: only at the end"},
    {"trainer.checkpoint_every",
     &field_of<&LmConfig::trainer, &LmConfig::Trainer::checkpoint_every>,
     "steps between checkpoints; 0: only at the end", false},
    {"trainer.keep_checkpoints",
     &field_of<&LmConfig::trainer, &LmConfig::Trainer::keep_checkpoints>,
     "newest checkpoints kept, besides the best one", false},
    {"trainer.matmul", &field_of<&LmConfig::trainer, &LmConfig::Trainer::matmul>,
     "library of f32 matrix products: onednn, mkl, or auto (onednn on AVX-512 processors "
     "that are not Intel's)"},
    {"trainer.recompute_every", &field_of<&LmConfig::trainer, &LmConfig::Trainer::recompute_every>,
     "activation checkpointing: layers 0, k, 2k, ... keep only their inputs for the backward pass "
     "and are computed again there; results keep their bits; 0: none",
     false},
    {"trainer.max_memory_mb", &field_of<&LmConfig::trainer, &LmConfig::Trainer::max_memory_mb>,
     "MiB that tensors may take; where a step would pass it: all layers are computed again in the "
     "backward pass, then micro-batches are halved, else the run ends; 0: no limit"},
    {"trainer.metrics", &field_of<&LmConfig::trainer, &LmConfig::Trainer::metrics>,
     "where the row of each step goes: csv (always), jsonl, tensorboard", false},
});

std::string number_text(double value) {
  std::array<char, 40> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  std::string out(text.data(), end);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";
  return out;
}

// A TOML basic string.
std::string toml_string(const std::string& text) { return Json(text).dump(); }

[[noreturn]] void fail_key(std::string_view key, std::string_view wanted, std::string_view got) {
  fail_argument(key, wanted, got);
}

void check_range(std::string_view key, Index value, Index low, Index high) {
  if (value < low || value > high) fail_key(key, concat(low, " to ", high), concat(value));
}

void check_range(std::string_view key, double value, double low, double high) {
  if (!(value >= low && value <= high)) fail_key(key, concat(low, " to ", high), concat(value));
}

void check_model(const LmConfig::Model& model) {
  check_range("model.hidden_size", model.hidden_size, 8, 65536);
  check_range("model.intermediate_size", model.intermediate_size, 8, 1 << 20);
  check_range("model.layers", model.layers, 1, 512);
  check_range("model.heads", model.heads, 1, 1024);
  check_range("model.kv_heads", model.kv_heads, 0, model.heads);
  check_range("model.context", model.context, 2, 1 << 20);
  check_range("model.rope_theta", model.rope_theta, 1, 1e12);
  check_range("model.norm_eps", model.norm_eps, 1e-12, 1);
  if (model.kv_heads != 0 && model.heads % model.kv_heads != 0) {
    fail_key("model.kv_heads", concat("a divisor of ", model.heads), concat(model.kv_heads));
  }
  if (model.head_dim == 0 && model.hidden_size % model.heads != 0) {
    fail_key("model.hidden_size", concat("a multiple of ", model.heads, " heads"),
             concat(model.hidden_size));
  }
  const Index head_dim = model.head_dim == 0 ? model.hidden_size / model.heads : model.head_dim;
  if (head_dim < 8 || head_dim > 512 || head_dim % 2 != 0) {
    fail_key("model.head_dim", "an even number from 8 to 512", concat(head_dim));
  }
}

void check_data(const LmConfig::Data& data) {
  if (data.tokenizer != "bpe" && data.tokenizer != "byte") {
    fail_key("data.tokenizer", "bpe or byte", data.tokenizer);
  }
  if (data.windows != "document" && data.windows != "stream") {
    fail_key("data.windows", "document or stream", data.windows);
  }
  check_range("data.vocab_size", data.vocab_size, 258, 1 << 20);
  check_range("data.stories", data.stories, 1, 100'000'000);
  check_range("data.held_out_stories", data.held_out_stories, 1, 1'000'000);
  check_range("data.validation_tokens", data.validation_tokens, 2, Index{1} << 40);
}

void check_lr(const LmConfig& config) {
  const LmConfig::Lr& lr = config.lr;
  if (lr.schedule != "cosine" && lr.schedule != "linear" && lr.schedule != "constant" &&
      lr.schedule != "one_cycle") {
    fail_key("lr.schedule", "cosine, linear, constant or one_cycle", lr.schedule);
  }
  check_range("lr.peak", lr.peak, 0, 1000);
  check_range("lr.warm_up_steps", lr.warm_up_steps, 0, Index{1} << 40);
  check_range("lr.final_ratio", lr.final_ratio, 0, 1);
  check_range("lr.rise", lr.rise, 0.001, 0.999);
}

void check_optim(const LmConfig& config) {
  static_cast<void>(default_peak(config.optim.name));
  check_range("optim.weight_decay", config.optim.weight_decay, 0, 10);
  check_range("optim.beta1", config.optim.beta1, 0, 0.999999);
  check_range("optim.beta2", config.optim.beta2, 0, 0.999999);
  check_range("optim.eps", config.optim.eps, 1e-30, 1);
  check_range("optim.momentum", config.optim.momentum, 0, 0.999999);
  check_range("optim.decay_rate", config.optim.decay_rate, 0, 0.999999);
}

}  // namespace

double default_peak(std::string_view optimizer) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kPeaks = {
      {{"adamw", 4e-3}, {"adatamw", 4e-4}, {"tam", 0.2}, {"sgd", 0.1}}};
  for (const auto& [name, peak] : kPeaks) {
    if (name == optimizer) return peak;
  }
  fail_key("optim.name", "adamw, tam, adatamw or sgd", optimizer);
}

double peak_of(const LmConfig& config) {
  return config.lr.peak > 0 ? config.lr.peak : default_peak(config.optim.name);
}

std::span<const ConfigKey> config_keys() { return kKeys; }

std::string_view type_of(const ConfigKey& key) {
  constexpr std::array<std::string_view, 5> kNames = {"integer", "number", "boolean", "string",
                                                      "strings"};
  LmConfig config;
  return kNames[key.field(config).index()];
}

std::string value_of(const ConfigKey& key, const LmConfig& config) {
  // Fields are reached through a mutable reference; the copy is what they point into.
  LmConfig copy = config;
  const ConfigField field = key.field(copy);
  if (const auto* integer = std::get_if<Index*>(&field)) return concat(**integer);
  if (const auto* number = std::get_if<double*>(&field)) return number_text(**number);
  if (const auto* boolean = std::get_if<bool*>(&field)) return **boolean ? "true" : "false";
  if (const auto* text = std::get_if<std::string*>(&field)) return toml_string(**text);
  std::string list;
  for (const std::string& text : *std::get<std::vector<std::string>*>(field)) {
    list += concat(list.empty() ? "" : ", ", toml_string(text));
  }
  return concat('[', list, ']');
}

void check_config(const LmConfig& config) {
  check_model(config.model);
  check_data(config.data);
  check_optim(config);
  check_lr(config);
  const LmConfig::Trainer& trainer = config.trainer;
  check_range("trainer.steps", trainer.steps, 1, Index{1} << 40);
  check_range("trainer.micro_batch", trainer.micro_batch, 1, 1 << 20);
  check_range("trainer.accumulation_steps", trainer.accumulation_steps, 1, 1 << 20);
  check_range("trainer.clip_norm", trainer.clip_norm, 0, 1e30);
  check_range("trainer.seed", trainer.seed, 0, std::numeric_limits<Index>::max());
  check_range("trainer.validate_every", trainer.validate_every, 0, Index{1} << 40);
  check_range("trainer.checkpoint_every", trainer.checkpoint_every, 0, Index{1} << 40);
  check_range("trainer.keep_checkpoints", trainer.keep_checkpoints, 1, 10000);
  check_range("trainer.recompute_every", trainer.recompute_every, 0, 512);
  check_range("trainer.max_memory_mb", trainer.max_memory_mb, 0, Index{1} << 30);
  static_cast<void>(parse_metrics_formats(trainer.metrics));
  if (trainer.matmul != "auto" && trainer.matmul != "onednn" && trainer.matmul != "mkl") {
    fail_key("trainer.matmul", "auto, onednn or mkl", trainer.matmul);
  }
}

std::string to_toml(const LmConfig& config) {
  std::string out, section;
  for (const ConfigKey& key : kKeys) {
    const std::size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      out += concat(out.empty() ? "[" : "\n[", section, "]\n");
    }
    out += concat(key.name.substr(dot + 1), " = ", value_of(key, config), '\n');
  }
  return out;
}

Json to_json(const LmConfig& config) {
  Json out = Json::object();
  for (const ConfigKey& key : kKeys) out[std::string(key.name)] = value_of(key, config);
  return out;
}

std::string config_hash(const LmConfig& config) {
  std::string text;
  for (const ConfigKey& key : kKeys) {
    if (key.fixed_in_run) text += concat(key.name, '=', value_of(key, config), '\n');
  }
  return sha256_hex_of_text(text);
}

void check_same_run(const Json& recorded, const LmConfig& config) {
  for (const ConfigKey& key : kKeys) {
    if (!key.fixed_in_run) continue;
    const auto found = recorded.find(std::string(key.name));
    const std::string before = found == recorded.end() ? "nothing" : found->get<std::string>();
    const std::string now = value_of(key, config);
    if (before != now) {
      fail_key(key.name, concat("the value that the run was started with, ", before), now);
    }
  }
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

}  // namespace hone::trainer
