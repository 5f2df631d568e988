// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/core/gguf.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/model_io/decimal.h"
#include "hone/model_io/gguf_keys.h"
#include "hone/model_io/gguf_names.h"
#include "hone/model_io/gguf_parts.h"
#include "hone/model_io/gguf_vocabulary.h"
#include "hone/model_io/loaded_model.h"
#include "hone/model_io/tokenizer_file.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRopeDivisors = "rope_freqs.weight";

// The keys below "llama.". Numbers that the file stores as f32 are read by widen_decimal().
class Keys {
 public:
  Keys(const GgufFile& file, std::string where) : file_(file), where_(std::move(where)) {}

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
  static std::string key(std::string_view name) { return concat("llama.", name); }

 private:
  const GgufFile& file_;
  std::string where_;
};

void read_rope_scaling(const GgufFile& file, const Keys& keys, const std::string& where,
                       RopeSpec& rope) {
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
  if (const auto relative = file.number(kAttentionFactorKey))
    rope.attention_factor =
        widen_decimal(static_cast<float>(*relative * yarn_default_factor(rope)));
  rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast").value_or(32);
  rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow").value_or(1);
}

void reject_other_kinds(const GgufFile& file, const Keys& keys, const std::string& where) {
  const std::string_view arch = file.string("general.architecture").value_or("");
  if (arch != "llama")
    fail_unsupported(where, "the architecture llama", arch.empty() ? "none" : quote_name(arch));
  if (keys.integer("expert_count").value_or(0) > 0)
    fail_unsupported(where, concat("This model has ", *keys.integer("expert_count"),
                                   " experts; only dense models are supported."));
  if (keys.integer("attention.sliding_window").value_or(0) > 0)
    fail_unsupported(where, concat("This model has an attention window of ",
                                   *keys.integer("attention.sliding_window"),
                                   "; only full attention is supported."));
}

// GGUF stores Llama 3 scaling as divisors. hone adds the formula's parameters, which are used only
// if they yield these divisors, because other programs may have changed those.
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

Architecture read_architecture(const GgufFile& file, const Keys& keys, const std::string& where) {
  Architecture a;
  a.context = keys.required_integer("context_length");
  a.hidden_size = keys.required_integer("embedding_length");
  a.layers = keys.required_integer("block_count");
  const auto width = keys.uniform_integer("feed_forward_length");
  const auto heads = keys.uniform_integer("attention.head_count");
  if (!width || !heads || *heads < 1)
    fail_corrupt(where, "llama.feed_forward_length or llama.attention.head_count is missing or 0.");
  a.intermediate_size = *width;
  a.heads = *heads;
  a.kv_heads = keys.uniform_integer("attention.head_count_kv").value_or(a.heads);
  a.head_dim = keys.integer("attention.key_length").value_or(a.hidden_size / a.heads);
  const Index value_length = keys.integer("attention.value_length").value_or(a.head_dim);
  if (value_length != a.head_dim)
    fail_unsupported(where, concat("a value length of ", a.head_dim, ", the key length"),
                     concat(value_length));
  const auto eps = keys.number("attention.layer_norm_rms_epsilon");
  if (!eps) fail_corrupt(where, "There is no key llama.attention.layer_norm_rms_epsilon.");
  a.norm_eps = *eps;
  a.rope.theta = keys.number("rope.freq_base").value_or(10000);
  a.rope.rotary_dims = keys.integer("rope.dimension_count").value_or(a.head_dim);
  a.rope.pairing = RopePairing::Adjacent;
  read_rope_scaling(file, keys, where, a.rope);
  for (const std::string_view key : kStopKeys) {
    if (const auto id = file.integer(key)) {
      if (*id < 0 || *id > Index{1} << 30)
        fail_corrupt(where, concat("a token id for ", key), concat(*id));
      a.stop_ids.push_back(static_cast<text::TokenId>(*id));
    }
  }
  std::sort(a.stop_ids.begin(), a.stop_ids.end());
  a.stop_ids.erase(std::unique(a.stop_ids.begin(), a.stop_ids.end()), a.stop_ids.end());
  if (const auto id = file.integer(kBosKey)) {
    if (*id < 0 || *id > Index{1} << 30) fail_corrupt(where, "a BOS token id", concat(*id));
    a.bos_id = static_cast<text::TokenId>(*id);
  }
  return a;
}

StoredMatrix to_stored(const GgufTensor& tensor) {
  StoredMatrix out;
  out.rows = tensor.dims[1];
  out.cols = tensor.dims[0];
  out.bytes = tensor.bytes;
  switch (static_cast<GgufType>(tensor.type)) {
    case GgufType::F32:
      return out;
    case GgufType::F16:
      out.dtype = Dtype::Float16;
      return out;
    case GgufType::BF16:
      out.dtype = Dtype::BFloat16;
      return out;
    default:  // parse_gguf() has refused what is not in gguf_type_info()
      out.layout = WeightLayout::GgufBlocks;
      out.block_type = static_cast<GgufType>(tensor.type);
      return out;
  }
}

void read_divisors(const GgufTensor& tensor, const std::string& where, RopeSpec& rope) {
  if (static_cast<GgufType>(tensor.type) != GgufType::F32 || tensor.dims[1] != 1 ||
      tensor.dims[2] != 1 || tensor.dims[3] != 1 || tensor.dims[0] != rope.rotary_dims / 2)
    fail_corrupt(where,
                 concat(kRopeDivisors, " does not have ", rope.rotary_dims / 2, " f32 values."));
  rope.frequency_divisors.resize(static_cast<std::size_t>(tensor.dims[0]));
  decode_row(to_stored(tensor), 0, rope.frequency_divisors);
}

void add_tensors(LoadedModel& model, const GgufFile& file, const std::string& where) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name == kRopeDivisors) {
      read_divisors(tensor, where, model.arch.rope);
      continue;
    }
    NamedMatrix out;
    out.name = to_hugging_face_name(tensor.name);
    if (out.name.empty())
      fail_corrupt(where, concat(quote_name(tensor.name), " is not a tensor of a llama model."));
    if (tensor.dims[2] != 1 || tensor.dims[3] != 1)
      fail_corrupt(where, concat("a vector or a matrix for ", quote_name(tensor.name)),
                   concat("rank ", tensor.rank));
    out.is_vector = tensor.rank < 2;
    out.matrix = to_stored(tensor);
    model.matrices.push_back(std::move(out));
  }
}

// Fills in what the keys leave open from the tensors.
void infer_from_tensors(std::span<const GgufPart> parts, Architecture& a) {
  a.tied_embeddings = true;
  for (const GgufPart& part : parts) {
    for (const GgufTensor& tensor : part.file.tensors()) {
      if (tensor.name == "token_embd.weight") a.vocab_size = tensor.dims[1];
      if (tensor.name == "output.weight") a.tied_embeddings = false;
      if (tensor.name == "blk.0.attn_q.bias") a.attention_bias = true;
      if (tensor.name == "blk.0.ffn_gate.bias") a.mlp_bias = true;
    }
  }
  if (a.vocab_size == 0) fail_corrupt(parts.front().where, "There is no tensor token_embd.weight.");
}

// Like llama.cpp, hone accepts trailing bytes. It warns about them, because the file may not be the
// intended one.
void warn_of_trailing_bytes(const GgufPart& part) {
  const auto& [where, bytes, file] = part;
  if (file.tensors().empty()) return;
  const std::byte* end = file.tensors().back().bytes.data() + file.tensors().back().bytes.size();
  const Index left = bytes.data() + bytes.size() - end;
  if (left >= file.integer("general.alignment").value_or(32)) {
    log_warning(concat(where, ": ", left, " bytes after the last tensor are ignored"));
  }
}

}  // namespace

std::unique_ptr<LoadedModel> open_gguf(const fs::path& path, const OpenOptions& options) {
  auto model = std::make_unique<LoadedModel>();
  const std::string where = path.string();
  const std::vector<GgufPart> parts = map_gguf_parts(path, model->mappings);
  const GgufFile& file = parts.front().file;
  const Keys keys(file, where);
  reject_other_kinds(file, keys, where);
  model->model_format = ModelFormat::Gguf;
  model->arch = read_architecture(file, keys, where);
  infer_from_tensors(parts, model->arch);
  for (const GgufPart& part : parts) {
    model->bytes += static_cast<Index>(part.bytes.size());
    warn_of_trailing_bytes(part);
  }
  validate(model->arch, where);
  for (const GgufPart& part : parts) add_tensors(*model, part.file, part.where);
  validate(model->arch, where);  // again, now with the divisors
  restore_llama3(file, model->arch.rope);
  model->vocabulary =
      load_model_tokenizer(options, where, [&]() -> std::shared_ptr<const text::Tokenizer> {
        if (!has_gguf_vocabulary(file)) {
          if (!options.need_tokenizer) return nullptr;
          fail_unsupported(
              where, "This file has no vocabulary (no_vocab). Pass a tokenizer with --tokenizer.");
        }
        return text::make_tokenizer(read_gguf_vocabulary(file, where), where);
      });
  model->finish(where);
  return model;
}

}  // namespace hone::model_io
