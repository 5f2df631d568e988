// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/gguf.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/gguf_keys.h"
#include "hone/model_io/gguf_names.h"
#include "hone/model_io/gguf_vocabulary.h"
#include "hone/model_io/write_plan.h"

namespace hone::model_io {
namespace {

GgufType gguf_type_of(StoreType type) {
  switch (type) {
    case StoreType::F32:
      return GgufType::F32;
    case StoreType::F16:
      return GgufType::F16;
    case StoreType::BF16:
      return GgufType::BF16;
    case StoreType::Q8_0:
      return GgufType::Q8_0;
    case StoreType::Q4_0:
      break;
  }
  return GgufType::Q4_0;
}

// ggml's number for "mostly this type", which other programs only display.
Index file_type_of(GgufType type) {
  switch (type) {
    case GgufType::F32:
      return 0;
    case GgufType::F16:
      return 1;
    case GgufType::Q4_0:
      return 2;
    case GgufType::Q4_1:
      return 3;
    case GgufType::Q8_0:
      return 7;
    case GgufType::Q5_0:
      return 8;
    case GgufType::Q5_1:
      return 9;
    case GgufType::Q4_K:
      return 15;
    case GgufType::Q5_K:
      return 17;
    case GgufType::Q6_K:
      return 18;
    case GgufType::BF16:
      break;
  }
  return 32;
}

// The type of a tensor, and whether its blocks are copied because this writer cannot make them.
struct TensorType {
  GgufType type = GgufType::F32;
  std::optional<StoreType> store;  // empty: copied
};

TensorType type_of(const NamedMatrix& tensor, std::optional<StoreType> requested,
                   WriteReport& report) {
  const StoredMatrix& matrix = tensor.matrix;
  if (!requested && matrix.layout == WeightLayout::GgufBlocks && !stored_type(matrix))
    return {matrix.block_type, std::nullopt};
  const StoreType store = choose_type(tensor, requested, report);
  return {gguf_type_of(store), store};
}

// Rows of blocks in the order of the output.
void copy_rows(const StoredMatrix& matrix, const RowOrder& order, GgufWriter& writer) {
  const auto per_row = static_cast<Index>(matrix.bytes.size()) / matrix.rows;
  for (Index row = 0; row < matrix.rows; ++row) {
    writer.write(matrix.bytes.subspan(static_cast<std::size_t>(order.source(row) * per_row),
                                      static_cast<std::size_t>(per_row)));
  }
}

void set_scaling(const RopeSpec& rope, GgufWriter& writer) {
  if (rope.scaling != RopeScaling::Linear && rope.scaling != RopeScaling::Yarn) return;
  const bool yarn = rope.scaling == RopeScaling::Yarn;
  writer.set_string("llama.rope.scaling.type", yarn ? "yarn" : "linear");
  writer.set_number("llama.rope.scaling.factor", rope.factor);
  if (!yarn) return;
  writer.set_integer("llama.rope.scaling.original_context_length", rope.original_context);
  writer.set_number("llama.rope.scaling.yarn_beta_fast", rope.beta_fast);
  writer.set_number("llama.rope.scaling.yarn_beta_slow", rope.beta_slow);
  if (rope.attention_factor > 0)
    writer.set_number(kAttentionFactorKey, rope.attention_factor / yarn_default_factor(rope));
}

void set_architecture(const Architecture& a, GgufWriter& writer) {
  writer.set_integer("llama.vocab_size", a.vocab_size);
  writer.set_integer("llama.context_length", a.context);
  writer.set_integer("llama.embedding_length", a.hidden_size);
  writer.set_integer("llama.block_count", a.layers);
  writer.set_integer("llama.feed_forward_length", a.intermediate_size);
  writer.set_integer("llama.attention.head_count", a.heads);
  writer.set_integer("llama.attention.head_count_kv", a.kv_heads);
  writer.set_integer("llama.attention.key_length", a.head_dim);
  writer.set_integer("llama.attention.value_length", a.head_dim);
  writer.set_number("llama.attention.layer_norm_rms_epsilon", a.norm_eps);
  writer.set_integer("llama.rope.dimension_count", a.rope.rotary_dims);
  writer.set_number("llama.rope.freq_base", a.rope.theta);
  set_scaling(a.rope, writer);
}

// Base frequencies divided by scaled ones; empty if the file's keys describe the scaling.
std::vector<float> frequency_divisors(const RopeSpec& rope, GgufWriter& writer) {
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

void set_ids(const Architecture& a, const text::Tokenizer* tokenizer, GgufWriter& writer) {
  // The tokenizer's own EOS comes first, because it is the one that other programs append and stop
  // at.
  std::vector<text::TokenId> stops = a.stop_ids;
  if (tokenizer != nullptr && tokenizer->eos()) {
    const auto own = std::find(stops.begin(), stops.end(), *tokenizer->eos());
    if (own != stops.end()) std::rotate(stops.begin(), own, own + 1);
  }
  if (stops.size() > kStopKeys.size())
    fail_unsupported("gguf", concat("at most ", kStopKeys.size(), " stop tokens"),
                     concat(stops.size()));
  for (std::size_t i = 0; i < stops.size(); ++i) writer.set_integer(kStopKeys[i], stops[i]);
  if (a.bos_id) writer.set_integer(kBosKey, *a.bos_id);
}

void add_tensor(GgufWriter& writer, const NamedMatrix& tensor, GgufType type) {
  const StoredMatrix& matrix = tensor.matrix;
  const std::vector<Index> dims = tensor.is_vector ? std::vector<Index>{matrix.cols}
                                                   : std::vector<Index>{matrix.cols, matrix.rows};
  writer.add_tensor(to_gguf_name(tensor.name), type, dims);
}

}  // namespace

WriteReport write_gguf(const std::filesystem::path& path, const ModelSource& source,
                       std::optional<StoreType> type) {
  const std::string where = path.string();
  const Architecture& a = source.architecture;
  refuse_factored(a, where);
  const std::vector<const NamedMatrix*> tensors = order_tensors(source, where);
  WriteReport report;
  std::vector<TensorType> types;
  for (const NamedMatrix* tensor : tensors) types.push_back(type_of(*tensor, type, report));

  GgufWriter writer(path);
  writer.set_string("general.architecture", "llama");
  writer.set_string("general.name", path.stem().string());
  writer.set_integer("general.file_type", file_type_of(types.front().type));
  writer.set_integer("general.quantization_version", 2);
  set_architecture(a, writer);
  const std::vector<float> divisors = frequency_divisors(a.rope, writer);
  if (source.tokenizer != nullptr) {
    write_gguf_vocabulary(source.tokenizer->vocabulary(), a.vocab_size, writer);
  } else {
    writer.set_string("tokenizer.ggml.model", "no_vocab");
  }
  set_ids(a, source.tokenizer, writer);

  if (!divisors.empty()) {
    const Index count = static_cast<Index>(divisors.size());
    writer.add_tensor("rope_freqs.weight", GgufType::F32, std::span(&count, 1));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) add_tensor(writer, *tensors[i], types[i].type);
  if (!divisors.empty()) writer.write(std::as_bytes(std::span(divisors)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const RowOrder order(a, tensors[i]->name, RopePairing::Adjacent);
    if (!types[i].store) {
      copy_rows(tensors[i]->matrix, order, writer);
      continue;
    }
    encode_tensor(*tensors[i], order, *types[i].store,
                  [&](std::span<const std::byte> bytes) { writer.write(bytes); });
  }
  source.check_intact();
  writer.commit();
  report.tensors = static_cast<Index>(tensors.size());
  report.bytes = writer.bytes_written();
  return report;
}

}  // namespace hone::model_io
