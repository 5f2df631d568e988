// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/family/family.h"
#include "hone/model_io/family/hf_rope.h"
#include "hone/model_io/family/layer_windows.h"
#include "hone/model_io/json_fields.h"

namespace hone::model_io {
namespace {

constexpr std::string_view kModelType = "model_type";
// Artifacts have the key, and these before the names of class and type; older ones do not.
constexpr const char* kArtifact = "hone";
constexpr std::string_view kArtifactClass = "Hone", kArtifactType = "hone_";

std::string without(std::string_view prefix, const std::string& name) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

const Family& read_family(const JsonFields& config) {
  std::string name;
  if (const Json* list = config.find("architectures")) {
    if (!list->is_array() || list->empty() || !list->front().is_string())
      config.refuse("architectures", "a list of names", list->type_name());
    name = list->front().get<std::string>();
  }
  std::string type = config.string(kModelType).value_or("");
  if (config.has(kArtifact)) {
    name = without(kArtifactClass, name);
    type = without(kArtifactType, type);
  }
  if (config.has("factored_layers")) {
    name = without(kFactoredClass, name);
    type = without(kFactoredType, type);
  }
  const Family* family = find_family(name, type);
  if (family == nullptr) {
    const std::string& got = name.empty() ? type : name;
    fail_unsupported(config.where(), concat("the model class ", list_classes()),
                     got.empty() ? "none" : quote_name(got));
  }
  return *family;
}

std::span<const std::string_view> activation_names(MlpKind kind) {
  static constexpr std::array<std::string_view, 2> kSilu{"silu", "swish"};
  static constexpr std::array<std::string_view, 2> kGelu{"gelu_pytorch_tanh", "gelu_new"};
  if (kind == MlpKind::SiluGate) return kSilu;
  return kGelu;
}

// What no row of the table serves.
void refuse_other_kinds(const JsonFields& config, const Family& family) {
  if (config.has("quantization_config"))
    fail_unsupported(config.where(),
                     "Models with a quantization_config are not supported; weights must be f32, "
                     "f16, bf16 or quantized by hone.");
  const auto names = activation_names(family.mlp);
  const std::string_view key = family.keys.activation;
  const std::string act = config.string(key).value_or(std::string(names.front()));
  if (std::ranges::find(names, act) == names.end())
    fail_unsupported(config.where(), concat(names[0], " or ", names[1], " as ", key),
                     quote_name(act));
  for (const char* other : {"add_cross_attention", "use_bidirectional_attention"}) {
    if (config.boolean(other).value_or(false))
      fail_unsupported(config.where(), concat("no ", other), "true");
  }
}

Index number_of(const JsonFields& config, std::string_view key, Index absent) {
  return key.empty() ? absent : config.integer(key).value_or(absent);
}

// A number that null switches off, while an absent key has the family's default.
double cap_of(const JsonFields& config, std::string_view key, double absent) {
  return config.mentions(key) ? config.number(key).value_or(0) : absent;
}

void read_sizes(const JsonFields& config, const Family& family, Architecture& a) {
  const ConfigKeys& keys = family.keys;
  a.vocab_size = config.required_integer("vocab_size");
  a.hidden_size = config.required_integer(keys.hidden);
  a.layers = config.required_integer(keys.layers);
  a.heads = config.required_integer(keys.heads);
  if (a.heads < 1) config.refuse(keys.heads, "at least 1", concat(a.heads));
  if (a.hidden_size < 0 || a.hidden_size > Index{1} << 30)
    config.refuse(keys.hidden, "a size below 2^30", concat(a.hidden_size));
  a.intermediate_size = family.mlp == MlpKind::GeluTanh
                            ? config.integer(keys.intermediate).value_or(4 * a.hidden_size)
                            : config.required_integer(keys.intermediate);
  a.kv_heads = number_of(config, keys.kv_heads, a.heads);
  const Index head_dim = family.defaults.head_dim;
  a.head_dim = config.mentions(keys.head_dim) || head_dim == 0
                   ? number_of(config, keys.head_dim, a.hidden_size / a.heads)
                   : head_dim;
  a.context = config.integer(keys.context).value_or(family.defaults.context);
  a.norm_eps = config.number(keys.eps).value_or(family.defaults.norm_eps);
  a.tied_embeddings = config.boolean("tie_word_embeddings").value_or(family.defaults.tied);
}

void read_layer_widths(const JsonFields& config, Architecture& a) {
  const auto read = [&](const char* key) {
    std::vector<Index> out;
    const Json* list = config.find(key);
    if (list == nullptr) return out;
    if (!list->is_array()) config.refuse(key, "a list of whole numbers", list->type_name());
    for (const Json& one : *list) {
      if (!one.is_number_integer()) config.refuse(key, "whole numbers", one.type_name());
      out.push_back(one.get<Index>());
    }
    return out;
  };
  a.layer_heads = read(kLayerHeads);
  a.layer_intermediate = read(kLayerIntermediate);
}

void read_traits(const JsonFields& config, const Family& family, Architecture& a) {
  apply_family(family, FileFormat::HuggingFace, a);
  if (family.attention_bias == BiasRule::Key)
    a.attention_bias = config.boolean("attention_bias").value_or(false);
  if (family.mlp_bias == BiasRule::Key) a.mlp_bias = config.boolean("mlp_bias").value_or(false);
  if (family.scales_embedding) a.embedding_scale = std::sqrt(static_cast<double>(a.hidden_size));
  if (family.has_query_scalar) {
    const double scalar =
        config.number("query_pre_attn_scalar").value_or(family.defaults.query_scalar);
    if (!(scalar > 0)) config.refuse("query_pre_attn_scalar", "a number above 0", concat(scalar));
    a.attention_scale = 1 / std::sqrt(scalar);
  }
  if (family.has_soft_caps) {
    a.attention_soft_cap = cap_of(config, "attn_logit_softcapping", family.defaults.attention_cap);
    a.logit_soft_cap = cap_of(config, "final_logit_softcapping", family.defaults.logit_cap);
  }
  if (family.has_score_switches) {
    if (!config.boolean("scale_attn_weights").value_or(true)) a.attention_scale = 1;
    a.inverse_layer_scale = config.boolean("scale_attn_by_inverse_layer_idx").value_or(false);
  }
  a.windows = read_windows(config, family, a.layers);
}

text::TokenId to_token_id(const Json& value, const JsonFields& fields, std::string_view key) {
  if (!value.is_number_integer()) fields.refuse(key, "a token id or a list", value.type_name());
  const auto id = value.get<Index>();
  if (id < 0 || id > Index{1} << 30) fields.refuse(key, "a token id", concat(id));
  return static_cast<text::TokenId>(id);
}

constexpr const char* kGeneration = "generation_config.json";

void check_sampling(const JsonFields& defaults) {
  for (const char* key : {"temperature", "top_p", "min_p", "repetition_penalty"}) {
    const std::optional<double> value = defaults.number(key);
    if (value && *value < 0) defaults.refuse(key, "a number of at least 0", concat(*value));
  }
  defaults.integer("top_k");
  defaults.boolean("do_sample");
}

void add_stop_ids(const JsonFields& fields, std::vector<text::TokenId>& out) {
  const Json* eos = fields.find("eos_token_id");
  if (eos == nullptr) return;
  if (!eos->is_array()) return out.push_back(to_token_id(*eos, fields, "eos_token_id"));
  for (const Json& id : *eos) out.push_back(to_token_id(id, fields, "eos_token_id"));
}

// transformers fills in ids of the published models, also for those with a smaller vocabulary.
void drop_absent_ids(Architecture& a, std::string_view where) {
  if (a.vocab_size < 1) return;  // which validate() refuses
  const auto is_absent = [&](text::TokenId id) { return id >= a.vocab_size; };
  std::size_t dropped = std::erase_if(a.stop_ids, is_absent);
  if (a.bos_id && is_absent(*a.bos_id)) {
    a.bos_id.reset();
    ++dropped;
  }
  if (dropped == 0) return;
  log_warning(concat(where, ": The model has only ", a.vocab_size,
                     " tokens; larger ids in eos_token_id and bos_token_id are ignored."));
}

void read_token_ids(const JsonFields& config, const JsonFields& generation, Architecture& a) {
  add_stop_ids(config, a.stop_ids);
  add_stop_ids(generation, a.stop_ids);
  std::sort(a.stop_ids.begin(), a.stop_ids.end());
  a.stop_ids.erase(std::unique(a.stop_ids.begin(), a.stop_ids.end()), a.stop_ids.end());
  if (const Json* bos = config.find("bos_token_id"))
    a.bos_id = to_token_id(*bos, config, "bos_token_id");
  drop_absent_ids(a, config.where());
}

void write_sizes(const Architecture& a, const Family& family, Json& config) {
  const ConfigKeys& keys = family.keys;
  const auto set = [&](std::string_view key, Json value) {
    if (!key.empty()) config[std::string(key)] = std::move(value);
  };
  set(keys.activation, activation_names(family.mlp).front());
  set("vocab_size", a.vocab_size);
  set(keys.hidden, a.hidden_size);
  set(keys.intermediate, a.intermediate_size);
  set(keys.layers, a.layers);
  set(keys.heads, a.heads);
  set(keys.kv_heads, a.kv_heads);
  set(keys.head_dim, a.head_dim);
  set(keys.context, a.context);
  set(keys.eps, a.norm_eps);
}

void require(bool holds, std::string_view what) {
  if (!holds) fail_unsupported("config.json", concat("The format cannot express ", what, "."));
}

// 1 / scale²; a whole number if the scale is that of one, which GGUF stores in f32.
Json query_scalar(double scale) {
  const double scalar = 1 / (scale * scale), whole = std::round(scalar);
  if (std::abs(scalar - whole) <= 1e-6 * scalar) return static_cast<Index>(whole);
  return std::round(scalar * 1e6) / 1e6;
}

void write_traits(const Architecture& a, const Family& family, Json& config) {
  if (family.has_query_scalar) {
    config["query_pre_attn_scalar"] = query_scalar(a.score_scale(0));
  }
  if (family.has_soft_caps) {
    const auto cap = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
    config["attn_logit_softcapping"] = cap(a.attention_soft_cap);
    config["final_logit_softcapping"] = cap(a.logit_soft_cap);
  }
  if (family.has_score_switches) {
    config["scale_attn_weights"] = a.attention_scale == 0;
    config["scale_attn_by_inverse_layer_idx"] = a.inverse_layer_scale;
    require(a.attention_scale == 0 || a.attention_scale == 1, "this scale of attention");
  }
  if (family.attention_bias == BiasRule::Key) config["attention_bias"] = a.attention_bias;
  if (family.mlp_bias == BiasRule::Key) config["mlp_bias"] = a.mlp_bias;
  if (!family.learned_positions) write_hf_rope(a, family, config);
  write_windows(a, family, config);
  if (!a.layer_heads.empty()) config[kLayerHeads] = a.layer_heads;
  if (!a.layer_intermediate.empty()) config[kLayerIntermediate] = a.layer_intermediate;
}

}  // namespace

Architecture read_hf_config(const Json& config_json, const Json& generation,
                            const std::string& where) {
  const JsonFields config(config_json, where);
  const Family& family = read_family(config);
  refuse_other_kinds(config, family);
  Architecture a;
  read_sizes(config, family, a);
  read_layer_widths(config, a);
  if (!family.learned_positions) read_hf_rope(config, family, a);
  extend_context(a);
  read_traits(config, family, a);
  a.factored = read_factored_layers(config);
  const JsonFields defaults(generation,
                            std::filesystem::path(where).replace_filename(kGeneration).string());
  check_sampling(defaults);
  read_token_ids(config, defaults, a);
  return a;
}

Json write_hf_config(const Architecture& a, std::string_view dtype) {
  const Family& family = family_of(a);
  Json config = {{"architectures", Json::array({family.model_class})},
                 {kModelType, family.name},
                 {"tie_word_embeddings", a.tied_embeddings},
                 {"torch_dtype", dtype}};
  write_sizes(a, family, config);
  write_traits(a, family, config);
  if (!a.factored.empty() || !a.has_uniform_widths()) {
    config["architectures"] = Json::array({concat(kFactoredClass, family.model_class)});
    config[kModelType] = concat(kFactoredType, family.name);
    config["factored_layers"] = write_factored_layers(a.factored);
  }
  config["bos_token_id"] = a.bos_id ? Json(*a.bos_id) : Json(nullptr);
  if (a.stop_ids.empty()) {
    config["eos_token_id"] = nullptr;
  } else {
    config["eos_token_id"] = a.stop_ids.size() == 1 ? Json(a.stop_ids.front()) : Json(a.stop_ids);
  }
  return config;
}

void mark_as_artifact(Json& config, std::string_view format) {
  Json& name = config["architectures"][0];
  name = concat(kArtifactClass, name.get<std::string>());
  config[kModelType] = concat(kArtifactType, config[kModelType].get<std::string>());
  config[kArtifact] = {{"format", format}};
}

}  // namespace hone::model_io
