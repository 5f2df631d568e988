// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/gguf.h"
#include "hone/core/progress.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/family/written_tensor.h"
#include "hone/model_io/gguf_architecture.h"
#include "hone/model_io/gguf_keys.h"
#include "hone/model_io/gguf_vocabulary.h"

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

bool is_copied(const NamedMatrix& tensor) {
  return tensor.matrix.layout == WeightLayout::GgufBlocks && !stored_type(tensor.matrix);
}

// Stacked parts that are stored in different types become f16.
TensorType type_of(const WrittenTensor& tensor, std::optional<StoreType> requested,
                   WriteReport& report) {
  const NamedMatrix& first = *tensor.parts.front();
  const bool same = std::ranges::all_of(tensor.parts, [&](const NamedMatrix* part) {
    return is_copied(*part) == is_copied(first) &&
           (is_copied(first) ? part->matrix.block_type == first.matrix.block_type
                             : stored_type(part->matrix) == stored_type(first.matrix));
  });
  if (!requested && same && is_copied(first)) return {first.matrix.block_type, std::nullopt};
  if (!requested && !same && !tensor.is_vector) {
    report.kept.push_back({tensor.name, "f16", "its parts have different types"});
    requested = StoreType::F16;
  }
  const StoreType store = choose_type(first, requested, report);
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

void add_tensor(GgufWriter& writer, const WrittenTensor& tensor, GgufType type) {
  const std::vector<Index> dims = tensor.is_vector ? std::vector<Index>{tensor.cols}
                                                   : std::vector<Index>{tensor.cols, tensor.rows};
  writer.add_tensor(tensor.name, type, dims);
}

void write_tensor(GgufWriter& writer, const WrittenTensor& tensor, const StorageRules& rules,
                  const TensorType& type) {
  if (type.store) {
    return encode_written(tensor, rules, *type.store,
                          [&](std::span<const std::byte> bytes) { writer.write(bytes); });
  }
  for (const NamedMatrix* part : tensor.parts)
    copy_rows(part->matrix, RowOrder(rules.architecture, part->name, rules.pairing), writer);
}

}  // namespace

WriteReport write_gguf(const std::filesystem::path& path, const ModelSource& source,
                       std::optional<StoreType> type) {
  const std::string where = path.string();
  const Architecture& a = source.architecture;
  refuse_factored(a, where);
  if (!a.has_uniform_widths())
    fail_unsupported(where, "layers of one shape for GGUF", "widths that differ");
  const Family& family = family_of(a);
  const std::vector<WrittenTensor> tensors = written_tensors(source, FileFormat::Gguf, where);
  WriteReport report;
  std::vector<TensorType> types;
  for (const WrittenTensor& tensor : tensors) types.push_back(type_of(tensor, type, report));

  GgufWriter writer(path);
  writer.set_string("general.architecture", family.gguf);
  writer.set_string("general.name", path.stem().string());
  writer.set_integer("general.file_type", file_type_of(types.front().type));
  writer.set_integer("general.quantization_version", 2);
  write_gguf_architecture(a, writer);
  const std::vector<float> divisors = write_frequency_divisors(a.rope, writer);
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
  for (std::size_t i = 0; i < tensors.size(); ++i) add_tensor(writer, tensors[i], types[i].type);
  if (!divisors.empty()) writer.write(std::as_bytes(std::span(divisors)));
  const StorageRules rules{a, pairing_in(family, FileFormat::Gguf),
                           norm_offset_in(family, FileFormat::Gguf)};
  Progress progress("writing", std::ssize(tensors), "tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    write_tensor(writer, tensors[i], rules, types[i]);
    progress.update(static_cast<Index>(i) + 1);
  }
  source.check_intact();
  writer.commit();
  report.tensors = static_cast<Index>(tensors.size());
  report.bytes = writer.bytes_written();
  return report;
}

}  // namespace hone::model_io
