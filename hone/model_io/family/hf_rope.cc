// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/family/hf_rope.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::model_io {
namespace {

constexpr std::string_view kKnownRope = "default, linear, llama3, yarn or dynamic as rope type";
constexpr std::array<std::string_view, 4> kScaledTypes{"linear", "llama3", "yarn", "dynamic"};
constexpr const char *kFullLayers = "full_attention", *kSlidingLayers = "sliding_attention";
constexpr const char* kLocalTheta = "rope_local_base_freq";
constexpr double kDefaultLocalTheta = 10000;
constexpr const char* kOriginalLength = "original_max_position_embeddings";

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

// `outer`: config.json itself, which may have the original length instead of `rope`; or null.
void read_scaling(const JsonFields& rope, const JsonFields* outer, Index context, RopeSpec& out) {
  const std::string type = rope_type_of(rope);
  if (type == "default") return;
  if (std::ranges::find(kScaledTypes, type) == kScaledTypes.end())
    fail_unsupported(rope.where(), kKnownRope, quote_name(type));
  if (outer != nullptr) agreed_number(*outer, &rope, kOriginalLength);
  const auto inner = rope.integer(kOriginalLength);
  const auto given = inner || outer == nullptr ? inner : outer->integer(kOriginalLength);
  out.original_context = given.value_or(context);
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
  } else {
    out.scaling = RopeScaling::Yarn;
    read_yarn(rope, out);
  }
}

bool same_scaling(const RopeSpec& a, const RopeSpec& b) {
  return a.scaling == b.scaling && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor && a.original_context == b.original_context &&
         a.attention_factor == b.attention_factor && a.beta_fast == b.beta_fast &&
         a.beta_slow == b.beta_slow;
}

// The rotation that a fraction of each head's dimensions gets.
Index rotary_dims(const JsonFields& config, const JsonFields* rope, const Family& family,
                  Index head_dim) {
  const auto partial = agreed_number(config, rope, "partial_rotary_factor");
  if (!partial || *partial == 1) return head_dim;
  if (!family.has_partial_rotation)
    fail_unsupported(config.where(), "a partial_rotary_factor of 1", concat(*partial));
  if (!(*partial > 0 && *partial < 1))
    config.refuse("partial_rotary_factor", "a number above 0 and at most 1", concat(*partial));
  return static_cast<Index>(static_cast<double>(head_dim) * *partial);
}

// One RoPE: `older` is rope_scaling, `newer` rope_parameters or, with `by_type`, its part for a
// type of layers.
RopeSpec read_one(const JsonFields& config, const std::optional<JsonFields>& older,
                  const std::optional<JsonFields>& newer, bool by_type, Index context) {
  RopeSpec rope;
  if (older) read_scaling(*older, &config, context, rope);
  if (!newer) return rope;
  RopeSpec other;
  read_scaling(*newer, by_type ? nullptr : &config, context, other);
  if (older && !same_scaling(rope, other))
    fail_corrupt(config.where(), "rope_parameters and rope_scaling describe different scalings.");
  return other;
}

// RoPE of the layers with a window, where it has a base of its own.
RopeSpec read_window_rope(const JsonFields& config, const std::optional<JsonFields>& newer,
                          Index context) {
  RopeSpec rope = read_one(config, std::nullopt, newer, /*by_type=*/true, context);
  const auto outer = config.number(kLocalTheta);
  const auto inner = newer ? newer->number("rope_theta") : std::nullopt;
  if (outer && inner && *outer != *inner)
    fail_corrupt(config.where(),
                 concat(kLocalTheta, " has two values, ", *inner, " and ", *outer, "."));
  rope.theta = inner ? *inner : outer.value_or(kDefaultLocalTheta);
  return rope;
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
              {kOriginalLength, rope.original_context}};
    case RopeScaling::Yarn:
      break;
  }
  Json yarn = {{"rope_type", "yarn"},
               {"factor", rope.factor},
               {kOriginalLength, rope.original_context},
               {"beta_fast", rope.beta_fast},
               {"beta_slow", rope.beta_slow}};
  if (rope.attention_factor > 0) yarn["attention_factor"] = rope.attention_factor;
  return yarn;
}

Json write_parameters(const RopeSpec& rope) {
  Json out = write_scaling(rope);
  if (out.is_null()) out = {{"rope_type", "default"}};
  out["rope_theta"] = rope.theta;
  return out;
}

}  // namespace

void read_hf_rope(const JsonFields& config, const Family& family, Architecture& a) {
  const auto older = config.object("rope_scaling");
  auto newer = config.object("rope_parameters");
  std::optional<JsonFields> sliding;
  const bool by_type = newer && (newer->has(kFullLayers) || newer->has(kSlidingLayers));
  if (by_type) {
    if (!family.has_window_rope)
      fail_unsupported(config.where(), "one RoPE for all layers",
                       "rope_parameters for types of layers");
    sliding = newer->object(kSlidingLayers);
    newer = newer->object(kFullLayers);
  }
  a.rope = read_one(config, older, newer, by_type, a.context);
  a.rope.theta = agreed_number(config, newer ? &*newer : nullptr, "rope_theta")
                     .value_or(family.defaults.rope_theta);
  a.rope.rotary_dims = rotary_dims(config, newer ? &*newer : nullptr, family, a.head_dim);
  if (!family.has_window_rope) return;
  a.window_rope = read_window_rope(config, sliding, a.context);
  a.window_rope->rotary_dims = a.rope.rotary_dims;
}

void write_hf_rope(const Architecture& a, const Family& family, Json& config) {
  if (!a.rope.frequency_divisors.empty())
    fail_unsupported("config.json",
                     "The format cannot express rope scaling by a GGUF file's frequency divisors.");
  const bool partial = a.rope.rotary_dims != a.head_dim;
  if (partial && !family.has_partial_rotation)
    fail_unsupported("config.json", concat("The format cannot express a rotation of ",
                                           a.rope.rotary_dims, " of ", a.head_dim, " dimensions."));
  if (partial)
    config["partial_rotary_factor"] =
        static_cast<double>(a.rope.rotary_dims) / static_cast<double>(a.head_dim);
  if (a.window_rope && a.window_rope->scaling != RopeScaling::None) {
    // Only the newer style has a scaling for the layers with a window.
    config["rope_parameters"] = {{kFullLayers, write_parameters(a.rope)},
                                 {kSlidingLayers, write_parameters(*a.window_rope)}};
    return;
  }
  config["rope_theta"] = a.rope.theta;
  config["rope_scaling"] = write_scaling(a.rope);
  if (a.window_rope) config[kLocalTheta] = a.window_rope->theta;
}

}  // namespace hone::model_io
