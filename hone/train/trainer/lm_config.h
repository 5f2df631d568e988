// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/model_io/architecture.h"

namespace hone::trainer {

// What `hone train lm` can be told. The defaults train 1.3 M parameters on a text of about a
// megabyte; docs/config.md lists every key.
struct LmConfig {
  struct Model {
    Index hidden_size = 160, intermediate_size = 432, layers = 4, heads = 5;
    Index kv_heads = 0;  // 0: heads
    Index head_dim = 0;  // 0: hidden_size / heads
    Index context = 128;
    double rope_theta = 10000, norm_eps = 1e-5;
    bool tied_embeddings = true, attention_bias = false, mlp_bias = false;
  } model;
  struct Data {
    std::string path;               // empty: the embedded story grammar
    std::string tokenizer = "bpe";  // or "byte"
    Index vocab_size = 512;
    std::string windows = "document";  // or "stream"
    Index stories = 20000, held_out_stories = 500;
    Index validation_tokens = 16384;
  } data;
  struct Optim {
    std::string name = "adamw";  // tam, adatamw, sgd
    double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    double momentum = 0.9, decay_rate = 0.9;
  } optim;
  struct Lr {
    std::string schedule = "cosine";  // linear, constant, one_cycle
    double peak = 0;                  // 0: default_peak(optim.name)
    Index warm_up_steps = 50;
    double final_ratio = 0.1;
    double rise = 0.3;
    bool cycle_momentum = false;
  } lr;
  struct Trainer {
    Index steps = 1750, micro_batch = 8, accumulation_steps = 1;
    double clip_norm = 1.0;
    Index seed = 0;
    Index validate_every = 200, checkpoint_every = 200, keep_checkpoints = 2;
    std::string matmul = "auto";
    Index recompute_every = 0, max_memory_mb = 0;
    std::vector<std::string> metrics = {"csv"};
  } trainer;
};

// Learning rates that train the default model well, per optimiser; Error{InvalidArgument} naming
// the known ones on another name.
double default_peak(std::string_view optimizer);
// lr.peak, or the optimiser's default where that is 0.
double peak_of(const LmConfig& config);

using ConfigField = std::variant<Index*, double*, bool*, std::string*, std::vector<std::string>*>;

struct ConfigKey {
  std::string_view name;  // "lr.peak"
  ConfigField (*field)(LmConfig&);
  std::string_view meaning;
  bool fixed_in_run = true;  // false: may differ when a run is resumed
};

// Every key there is, by section: the parser, docs/config.md and the resume check read this table.
std::span<const ConfigKey> config_keys();
// "integer", "number", "boolean", "string" or "strings", an array of those.
std::string_view type_of(const ConfigKey& key);
// The value as TOML writes it.
std::string value_of(const ConfigKey& key, const LmConfig& config);

// Reads a TOML file over `config`. Error{NotFound}; Error{InvalidArgument} naming file, line and
// key for malformed TOML, a wrong type, and an unknown key with the nearest known one.
void read_config(LmConfig& config, const std::filesystem::path& path);
// The same of a text; `where` names it in errors.
void read_config_text(LmConfig& config, std::string_view toml, std::string_view where);
// "lr.peak=0.002", as given with --set. A string needs no quotes, and neither do strings between
// commas.
void set_config(LmConfig& config, std::string_view assignment);
// Ranges and divisibility. Error{InvalidArgument} names the key.
void check_config(const LmConfig& config);

// All keys, as TOML.
std::string to_toml(const LmConfig& config);
// All keys: {"lr.peak": …}.
Json to_json(const LmConfig& config);
// SHA-256 over the keys that are fixed in a run.
std::string config_hash(const LmConfig& config);
// Error{InvalidArgument} naming the first key fixed in a run whose value is not the recorded one.
void check_same_run(const Json& recorded, const LmConfig& config);

// The model this configuration asks for.
model_io::Architecture make_architecture(const LmConfig& config, Index vocab_size);

}  // namespace hone::trainer
