// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/json_fields.h"

namespace hone::model_io {
namespace {

constexpr std::string_view kKnownModels = "LlamaForCausalLM";
constexpr std::string_view kKnownRope = "default, linear, llama3 or yarn as rope type";
constexpr double kDefaultTheta = 10000;

std::string rope_type_of(const JsonFields& rope) {
  const auto type = rope.string("type"), rope_type = rope.string("rope_type");
  if (type && rope_type && *type != *rope_type)
    rope.refuse("rope_type", concat("the same value as type, ", quote_name(*type)),
                quote_name(*rope_type));
  return rope_type ? *rope_type : type ? *type : "default";
}

// A number that may be given in either place. If it is given in both, the values must agree.
std::optional<double> agreed_number(const JsonFields& config, const JsonFields* rope,
                                    std::string_view key) {
  const auto outer = config.number(key);
  const auto inner = rope == nullptr ? std::nullopt : rope->number(key);
  if (outer && inner && *outer != *inner)
    fail_corrupt(config.where(), concat(key, " has two values, ", *inner, " and ", *outer, "."));
  return inner ? inner : outer;
}

void read_yarn(const JsonFields& rope, RopeSpec& out) {
  out.beta_fast = rope.number("beta_fast").value_or(32);
  out.beta_slow = rope.number("beta_slow").value_or(1);
  out.attention_factor = rope.number("attention_factor").value_or(0);
  if (!rope.boolean("truncate").value_or(true))
    fail_unsupported(rope.where(), "Yarn with truncate = false is not supported.");
  const auto mscale = rope.number("mscale"), all_dims = rope.number("mscale_all_dim");
  if (out.attention_factor == 0 && mscale && all_dims && *mscale != 0 && *all_dims != 0) {
    const double log_factor = out.factor > 1 ? 0.1 * std::log(out.factor) : 0;
    out.attention_factor = (*mscale * log_factor + 1) / (*all_dims * log_factor + 1);
  }
}

void read_scaling(const JsonFields& rope, Index context, RopeSpec& out) {
  const std::string type = rope_type_of(rope);
  if (type == "default") return;
  out.original_context = rope.integer("original_max_position_embeddings").value_or(context);
  if (type == "dynamic") {
    // Dynamic scaling has no effect up to the original length.
    if (context <= out.original_context) {
      out.original_context = 0;
      return;
    }
    fail_unsupported(
        rope.where(),
        concat("a context of at most ", out.original_context, " tokens with dynamic rope"),
        concat(context));
  }
  out.factor = rope.required_number("factor");
  if (type == "linear") {
    out.scaling = RopeScaling::Linear;
    out.original_context = 0;
  } else if (type == "llama3") {
    out.scaling = RopeScaling::Llama3;
    out.low_freq_factor = rope.required_number("low_freq_factor");
    out.high_freq_factor = rope.required_number("high_freq_factor");
  } else if (type == "yarn") {
    out.scaling = RopeScaling::Yarn;
    read_yarn(rope, out);
  } else {
    fail_unsupported(rope.where(), kKnownRope, quote_name(type));
  }
}

bool same_scaling(const RopeSpec& a, const RopeSpec& b) {
  return a.scaling == b.scaling && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor && a.original_context == b.original_context &&
         a.attention_factor == b.attention_factor && a.beta_fast == b.beta_fast &&
         a.beta_slow == b.beta_slow;
}

RopeSpec read_rope(const JsonFields& config, Index context, Index head_dim) {
  const auto older = config.object("rope_scaling");
  const auto newer = config.object("rope_parameters");
  RopeSpec rope;
  rope.rotary_dims = head_dim;
  rope.pairing = RopePairing::HalfSplit;
  if (older) read_scaling(*older, context, rope);
  if (newer) {
    RopeSpec other;
    read_scaling(*newer, context, other);
    if (older && !same_scaling(rope, other))
      fail_corrupt(config.where(), "rope_parameters and rope_scaling describe different scalings.");
    other.rotary_dims = head_dim;
    rope = other;
  }
  rope.theta =
      agreed_number(config, newer ? &*newer : nullptr, "rope_theta").value_or(kDefaultTheta);
  const auto partial = agreed_number(config, newer ? &*newer : nullptr, "partial_rotary_factor");
  if (partial && *partial != 1)
    fail_unsupported(config.where(), "a partial_rotary_factor of 1", concat(*partial));
  return rope;
}

void check_class(const JsonFields& config) {
  std::string name;
  if (const Json* list = config.find("architectures")) {
    if (!list->is_array() || list->empty() || !list->front().is_string())
      config.refuse("architectures", "a list of names", list->type_name());
    name = list->front().get<std::string>();
  } else if (config.string("model_type").value_or("") == "llama") {
    name = kKnownModels;
  }
  if (name != kKnownModels && !(name == kFactoredModel && config.has("factored_layers")))
    fail_unsupported(config.where(), concat("the model class ", kKnownModels),
                     name.empty() ? "none" : quote_name(name));
  if (config.has("quantization_config"))
    fail_unsupported(config.where(),
                     "Models with a quantization_config are not supported; weights must be f32, "
                     "f16, bf16 or quantized by hone.");
  const std::string act = config.string("hidden_act").value_or("silu");
  if (act != "silu" && act != "swish")
    fail_unsupported(config.where(), "silu as hidden_act", quote_name(act));
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
}

void add_stop_ids(const JsonFields& fields, std::vector<text::TokenId>& out) {
  const Json* eos = fields.find("eos_token_id");
  if (eos == nullptr) return;
  if (!eos->is_array()) return out.push_back(to_token_id(*eos, fields, "eos_token_id"));
  for (const Json& id : *eos) out.push_back(to_token_id(id, fields, "eos_token_id"));
}

Json write_scaling(const RopeSpec& rope) {
  switch (rope.scaling) {
    case RopeScaling::None:
      return nullptr;
    case RopeScaling::Linear:
      return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::Llama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_context}};
    case RopeScaling::Yarn:
      break;
  }
  Json yarn = {{"rope_type", "yarn"},
               {"factor", rope.factor},
               {"original_max_position_embeddings", rope.original_context},
               {"beta_fast", rope.beta_fast},
               {"beta_slow", rope.beta_slow}};
  if (rope.attention_factor > 0) yarn["attention_factor"] = rope.attention_factor;
  return yarn;
}

}  // namespace

Architecture read_hf_config(const Json& config_json, const Json& generation,
                            const std::string& where) {
  const JsonFields config(config_json, where);
  check_class(config);
  Architecture a;
  a.vocab_size = config.required_integer("vocab_size");
  a.hidden_size = config.required_integer("hidden_size");
  a.intermediate_size = config.required_integer("intermediate_size");
  a.layers = config.required_integer("num_hidden_layers");
  a.heads = config.required_integer("num_attention_heads");
  if (a.heads < 1) config.refuse("num_attention_heads", "at least 1", concat(a.heads));
  a.kv_heads = config.integer("num_key_value_heads").value_or(a.heads);
  a.head_dim = config.integer("head_dim").value_or(a.hidden_size / a.heads);
  a.context = config.integer("max_position_embeddings").value_or(2048);
  a.norm_eps = config.number("rms_norm_eps").value_or(1e-6);
  a.tied_embeddings = config.boolean("tie_word_embeddings").value_or(false);
  a.attention_bias = config.boolean("attention_bias").value_or(false);
  a.mlp_bias = config.boolean("mlp_bias").value_or(false);
  a.rope = read_rope(config, a.context, a.head_dim);
  a.factored = read_factored_layers(config);
  add_stop_ids(config, a.stop_ids);
  const JsonFields defaults(generation,
                            std::filesystem::path(where).replace_filename(kGeneration).string());
  check_sampling(defaults);
  add_stop_ids(defaults, a.stop_ids);
  std::sort(a.stop_ids.begin(), a.stop_ids.end());
  a.stop_ids.erase(std::unique(a.stop_ids.begin(), a.stop_ids.end()), a.stop_ids.end());
  if (const Json* bos = config.find("bos_token_id"))
    a.bos_id = to_token_id(*bos, config, "bos_token_id");
  return a;
}

Json write_hf_config(const Architecture& a, std::string_view dtype) {
  if (!a.rope.frequency_divisors.empty())
    fail_unsupported("config.json",
                     "The format cannot express rope scaling by a GGUF file's frequency divisors.");
  if (a.rope.rotary_dims != a.head_dim)
    fail_unsupported("config.json", concat("The format cannot express a rotation of ",
                                           a.rope.rotary_dims, " of ", a.head_dim, " dimensions."));
  Json config = {{"architectures", Json::array({kKnownModels})},
                 {"model_type", "llama"},
                 {"hidden_act", "silu"},
                 {"vocab_size", a.vocab_size},
                 {"hidden_size", a.hidden_size},
                 {"intermediate_size", a.intermediate_size},
                 {"num_hidden_layers", a.layers},
                 {"num_attention_heads", a.heads},
                 {"num_key_value_heads", a.kv_heads},
                 {"head_dim", a.head_dim},
                 {"max_position_embeddings", a.context},
                 {"rms_norm_eps", a.norm_eps},
                 {"rope_theta", a.rope.theta},
                 {"rope_scaling", write_scaling(a.rope)},
                 {"tie_word_embeddings", a.tied_embeddings},
                 {"attention_bias", a.attention_bias},
                 {"mlp_bias", a.mlp_bias},
                 {"torch_dtype", dtype}};
  if (!a.factored.empty()) {
    config["architectures"] = Json::array({kFactoredModel});
    config["model_type"] = kFactoredType;
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

}  // namespace hone::model_io
