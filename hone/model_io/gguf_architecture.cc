// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/gguf_architecture.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/model_io/decimal.h"
#include "hone/model_io/family/family.h"
#include "hone/model_io/family/layer_windows.h"
#include "hone/model_io/gguf_keys.h"

namespace hone::model_io {
namespace {

// The keys below the name of the architecture. Numbers that the file stores as f32 are read by
// widen_decimal().
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view prefix, std::string where)
      : file_(file), prefix_(prefix), where_(std::move(where)) {}

  std::optional<Index> integer(std::string_view name) const { return file_.integer(key(name)); }
  Index required_integer(std::string_view name) const {
    const auto value = integer(name);
    if (!value) fail_corrupt(where_, concat("There is no key ", key(name), "."));
    return *value;
  }
  std::optional<double> number(std::string_view name) const {
    const GgufValue* value = file_.find(key(name));
    const auto number = file_.number(key(name));
    if (number && value->type == GgufValueType::F32)
      return widen_decimal(static_cast<float>(*number));
    return number;
  }
  std::optional<std::string_view> string(std::string_view name) const {
    return file_.string(key(name));
  }
  // A whole number, or an array with the same one for every layer.
  std::optional<Index> uniform_integer(std::string_view name) const {
    const GgufValue* value = file_.find(key(name));
    if (value == nullptr || !value->is_array) return integer(name);
    const auto all = *file_.integers(key(name));
    if (all.empty() || std::any_of(all.begin(), all.end(), [&](Index n) { return n != all[0]; }))
      fail_unsupported(where_,
                       concat(key(name), " differs between layers, which is not supported."));
    return all[0];
  }
  std::string key(std::string_view name) const { return concat(prefix_, ".", name); }

 private:
  const GgufFile& file_;
  std::string prefix_, where_;
};

std::string_view eps_key(const Family& family) {
  return family.norm == NormKind::Layer ? "attention.layer_norm_epsilon"
                                        : "attention.layer_norm_rms_epsilon";
}

const Family& read_family(const GgufFile& file, const std::string& where) {
  const std::string_view arch = file.string("general.architecture").value_or("");
  const std::string_view own = file.string(kHoneFamily).value_or("");
  const bool windowed = file.integer(concat(arch, ".", kWindowKey)).value_or(0) > 0;
  const Family* found = nullptr;
  for (const Family& family : families()) {
    if (family.gguf != arch) continue;
    if (family.name == own) return family;
    const bool fits = !windowed || family.window != WindowRule::None;
    if (found == nullptr || (fits && windowed && found->window == WindowRule::None))
      found = &family;
  }
  if (found == nullptr)
    fail_unsupported(where, concat("the architecture ", list_gguf_architectures()),
                     arch.empty() ? "none" : quote_name(arch));
  return *found;
}

void refuse_other_kinds(const Keys& keys, const Family& family, const std::string& where) {
  if (const Index experts = keys.integer("expert_count").value_or(0); experts > 0)
    fail_unsupported(
        where, concat("This model has ", experts, " experts; only dense models are supported."));
  if (const Index window = keys.integer(kWindowKey).value_or(0);
      window > 0 && family.window == WindowRule::None)
    fail_unsupported(where, concat("This model has an attention window of ", window,
                                   "; only full attention is supported for ", family.gguf, "."));
}

void read_rope_scaling(const Keys& keys, const std::string& where, RopeSpec& rope) {
  const auto type = keys.string("rope.scaling.type");
  if (!type && keys.number("rope.scale_linear").value_or(1) != 1) {  // older files have no type
    rope.scaling = RopeScaling::Linear;
    rope.factor = *keys.number("rope.scale_linear");
  }
  if (!type || *type == "none") return;
  if (*type != "linear" && *type != "yarn")
    fail_unsupported(where, "none, linear or yarn as rope scaling", quote_name(*type));
  rope.factor = keys.number("rope.scaling.factor").value_or(1);
  rope.scaling = *type == "linear" ? RopeScaling::Linear : RopeScaling::Yarn;
  if (rope.scaling == RopeScaling::Linear) return;
  rope.original_context = keys.integer("rope.scaling.original_context_length")
                              .value_or(keys.required_integer("context_length"));
  if (const auto relative = keys.number(kAttentionFactor))
    rope.attention_factor =
        widen_decimal(static_cast<float>(*relative * yarn_default_factor(rope)));
  rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast").value_or(32);
  rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow").value_or(1);
}

void read_sizes(const Keys& keys, const Family& family, const std::string& where, Architecture& a) {
  a.context = keys.required_integer("context_length");
  a.hidden_size = keys.required_integer("embedding_length");
  a.layers = keys.required_integer("block_count");
  const auto width = keys.uniform_integer("feed_forward_length");
  const auto heads = keys.uniform_integer("attention.head_count");
  if (!width || !heads || *heads < 1)
    fail_corrupt(where, concat(keys.key("feed_forward_length"), " or ",
                               keys.key("attention.head_count"), " is missing or 0."));
  a.intermediate_size = *width;
  a.heads = *heads;
  a.kv_heads = keys.uniform_integer("attention.head_count_kv").value_or(a.heads);
  a.head_dim = keys.integer("attention.key_length").value_or(a.hidden_size / a.heads);
  const Index value_length = keys.integer("attention.value_length").value_or(a.head_dim);
  if (value_length != a.head_dim)
    fail_unsupported(where, concat("a value length of ", a.head_dim, ", the key length"),
                     concat(value_length));
  const auto eps = keys.number(eps_key(family));
  if (!eps) fail_corrupt(where, concat("There is no key ", keys.key(eps_key(family)), "."));
  a.norm_eps = *eps;
}

void read_rope(const Keys& keys, const Family& family, const std::string& where, Architecture& a) {
  a.rope.theta = keys.number("rope.freq_base").value_or(10000);
  a.rope.rotary_dims = keys.integer("rope.dimension_count").value_or(a.head_dim);
  read_rope_scaling(keys, where, a.rope);
  if (!family.has_window_rope) return;
  RopeSpec& local = a.window_rope.emplace();
  local.theta = keys.number(kWindowTheta).value_or(10000);
  local.rotary_dims = a.rope.rotary_dims;
  local.pairing = a.rope.pairing;
}

double read_scale(const Keys& keys, const Family& family, const Architecture& a) {
  if (const auto scale = keys.number("attention.scale"); scale && *scale > 0) return *scale;
  if (!family.has_query_scalar) return 0;
  const Index width = a.layers == family.width_scale_layers ? a.hidden_size / a.heads : a.head_dim;
  return 1 / std::sqrt(static_cast<double>(std::max<Index>(width, 1)));
}

void read_traits(const GgufFile& file, const Keys& keys, const Family& family,
                 const std::string& where, Architecture& a) {
  if (family.scales_embedding) a.embedding_scale = std::sqrt(static_cast<double>(a.hidden_size));
  a.attention_scale = read_scale(keys, family, a);
  a.inverse_layer_scale = file.boolean(kHoneInverseScale).value_or(false);
  if (family.has_soft_caps) {
    a.attention_soft_cap =
        keys.number("attn_logit_softcapping").value_or(family.defaults.attention_cap);
    a.logit_soft_cap = keys.number("final_logit_softcapping").value_or(family.defaults.logit_cap);
  }
  if (a.layers < 1 || a.layers > 1 << 16) return;  // validate() refuses it
  const Index window = keys.integer(kWindowKey).value_or(0);
  a.windows = default_windows(family, window, a.layers);
  if (const auto own = file.integers(kHoneWindows)) {
    if (std::ranges::any_of(*own, [&](Index one) { return one != 0 && one != window; }))
      fail_corrupt(where, concat("windows of 0 or ", window, " in ", kHoneWindows), "others");
    a.windows = *own;
  }
}

// The id that a key names: -1 stands for no token, and older converters store it as u32.
std::optional<text::TokenId> known_id(const GgufFile& file, std::string_view key) {
  const auto id = file.integer(key);
  if (!id || *id < 0 || *id >= Index{0x7fffffff}) return std::nullopt;
  return static_cast<text::TokenId>(*id);
}

void read_ids(const GgufFile& file, Architecture& a) {
  for (const std::string_view key : kStopKeys) {
    if (const auto id = known_id(file, key)) a.stop_ids.push_back(*id);
  }
  std::sort(a.stop_ids.begin(), a.stop_ids.end());
  a.stop_ids.erase(std::unique(a.stop_ids.begin(), a.stop_ids.end()), a.stop_ids.end());
  a.bos_id = known_id(file, kBosKey);
}

void write_traits(const Architecture& a, const Family& family, GgufWriter& writer) {
  const std::string prefix(family.gguf);
  const auto key = [&](std::string_view name) { return concat(prefix, ".", name); };
  if (family.has_query_scalar || a.attention_scale > 0)
    writer.set_number(key("attention.scale"), a.score_scale(0));
  if (a.inverse_layer_scale) writer.set_boolean(kHoneInverseScale, true);
  if (family.has_soft_caps) {
    writer.set_number(key("attn_logit_softcapping"), a.attention_soft_cap);
    writer.set_number(key("final_logit_softcapping"), a.logit_soft_cap);
  }
  const Index window = single_window(a, "gguf");
  if (window > 0) writer.set_integer(key(kWindowKey), window);
  if (a.windows == default_windows(family, window, a.layers)) return;
  std::vector<std::int32_t> windows;
  for (Index layer = 0; layer < a.layers; ++layer)
    windows.push_back(static_cast<std::int32_t>(a.window_of(layer)));
  writer.set_integers(kHoneWindows, windows);
}

void set_scaling(const RopeSpec& rope, std::string_view prefix, GgufWriter& writer) {
  const auto key = [&](std::string_view name) { return concat(prefix, ".rope.scaling.", name); };
  if (rope.scaling != RopeScaling::Linear && rope.scaling != RopeScaling::Yarn) return;
  const bool yarn = rope.scaling == RopeScaling::Yarn;
  writer.set_string(key("type"), yarn ? "yarn" : "linear");
  writer.set_number(key("factor"), rope.factor);
  if (!yarn) return;
  writer.set_integer(key("original_context_length"), rope.original_context);
  writer.set_number(key("yarn_beta_fast"), rope.beta_fast);
  writer.set_number(key("yarn_beta_slow"), rope.beta_slow);
  if (rope.attention_factor > 0)
    writer.set_number(concat(prefix, ".", kAttentionFactor),
                      rope.attention_factor / yarn_default_factor(rope));
}

}  // namespace

GgufModelKeys read_gguf_architecture(const GgufFile& file, const std::string& where) {
  const Family& family = read_family(file, where);
  const Keys keys(file, family.gguf, where);
  refuse_other_kinds(keys, family, where);
  Architecture a;
  apply_family(family, FileFormat::Gguf, a);
  read_sizes(keys, family, where, a);
  if (!family.learned_positions) read_rope(keys, family, where, a);
  extend_context(a);
  read_traits(file, keys, family, where, a);
  read_ids(file, a);
  return {std::move(a), &family};
}

void restore_llama3(const GgufFile& file, RopeSpec& rope) {
  const auto factor = file.number(kHoneRopeFactor), low = file.number(kHoneRopeLow),
             high = file.number(kHoneRopeHigh);
  const auto length = file.integer(kHoneRopeContext);
  if (!factor || !low || !high || !length || rope.scaling != RopeScaling::None) return;
  RopeSpec formula = rope;
  formula.frequency_divisors.clear();
  formula.scaling = RopeScaling::Llama3;
  formula.factor = widen_decimal(static_cast<float>(*factor));
  formula.low_freq_factor = widen_decimal(static_cast<float>(*low));
  formula.high_freq_factor = widen_decimal(static_cast<float>(*high));
  formula.original_context = *length;
  const std::vector<double> expected = rope_frequencies(formula).inverse;
  const std::vector<double> stored = rope_frequencies(rope).inverse;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!(std::abs(expected[i] - stored[i]) <= 1e-6 * expected[i])) return;
  }
  rope = formula;
}

void write_gguf_architecture(const Architecture& a, GgufWriter& writer) {
  const Family& family = family_of(a);
  const auto key = [&](std::string_view name) { return concat(family.gguf, ".", name); };
  if (const Family* first = std::ranges::find(families(), family.gguf, &Family::gguf).operator->();
      first->name != family.name)
    writer.set_string(kHoneFamily, family.name);
  writer.set_integer(key("vocab_size"), a.vocab_size);
  writer.set_integer(key("context_length"), a.context);
  writer.set_integer(key("embedding_length"), a.hidden_size);
  writer.set_integer(key("block_count"), a.layers);
  writer.set_integer(key("feed_forward_length"), a.intermediate_size);
  writer.set_integer(key("attention.head_count"), a.heads);
  writer.set_integer(key("attention.head_count_kv"), a.kv_heads);
  writer.set_integer(key("attention.key_length"), a.head_dim);
  writer.set_integer(key("attention.value_length"), a.head_dim);
  writer.set_number(key(eps_key(family)), a.norm_eps);
  write_traits(a, family, writer);
  if (a.learned_positions) return;
  writer.set_integer(key("rope.dimension_count"), a.rope.rotary_dims);
  writer.set_number(key("rope.freq_base"), a.rope.theta);
  if (a.window_rope) {
    if (a.window_rope->scaling != RopeScaling::None)
      fail_unsupported("gguf",
                       "The format cannot express a scaling of RoPE in the layers with a window.");
    writer.set_number(key(kWindowTheta), a.window_rope->theta);
  }
  set_scaling(a.rope, family.gguf, writer);
}

std::vector<float> write_frequency_divisors(const RopeSpec& rope, GgufWriter& writer) {
  if (rope.scaling != RopeScaling::Llama3) return rope.frequency_divisors;
  HONE_REQUIRE(rope.frequency_divisors.empty(), "gguf",
               "The format cannot express llama3 scaling together with frequency divisors.");
  writer.set_number(kHoneRopeFactor, rope.factor);
  writer.set_number(kHoneRopeLow, rope.low_freq_factor);
  writer.set_number(kHoneRopeHigh, rope.high_freq_factor);
  writer.set_integer(kHoneRopeContext, rope.original_context);
  RopeSpec plain = rope;
  plain.scaling = RopeScaling::None;
  const std::vector<double> base = rope_frequencies(plain).inverse;
  const std::vector<double> scaled = rope_frequencies(rope).inverse;
  std::vector<float> divisors;
  for (std::size_t i = 0; i < base.size(); ++i)
    divisors.push_back(static_cast<float>(base[i] / scaled[i]));
  return divisors;
}

}  // namespace hone::model_io
