// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "hone/core/check.h"
#include "hone/core/format/gguf.h"
#include "hone/core/progress.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/family/written_tensor.h"
#include "hone/model_io/gguf_architecture.h"
#include "hone/model_io/gguf_keys.h"
#include "hone/model_io/gguf_vocabulary.h"
#include "hone/model_io/metadata/gguf_metadata.h"

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

// The type of a matrix in a GGUF file that it was read from.
std::optional<GgufType> gguf_type_of(const StoredMatrix& matrix) {
  if (matrix.layout == WeightLayout::GgufBlocks) return matrix.block_type;
  const auto store = stored_type(matrix);
  if (matrix.layout == WeightLayout::Canonical || !store) return std::nullopt;
  return gguf_type_of(*store);
}

// Whether every matrix keeps the type that it has.
bool keep_types(std::span<const WrittenTensor> tensors, std::span<const TensorType> types) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (const NamedMatrix* part : tensors[i].parts)
      if (!part->is_vector && gguf_type_of(part->matrix) != types[i].type) return false;
  }
  return true;
}

// llama.cpp's number (LLAMA_FTYPE) for the type that most matrices of the layers have.
Index count_file_type(std::span<const WrittenTensor> tensors, std::span<const TensorType> types) {
  // The first row wins among equal counts.
  struct Row {
    GgufType type;
    Index number;  // for K-quants of the mixture _M, as llama.cpp guesses
    Index count = 0;
  };
  std::array<Row, 13> rows{{{GgufType::Q3_K, 12},
                            {GgufType::Q4_K, 15},
                            {GgufType::Q5_K, 17},
                            {GgufType::Q6_K, 18},
                            {GgufType::Q4_0, 2},
                            {GgufType::Q4_1, 3},
                            {GgufType::Q5_0, 8},
                            {GgufType::Q5_1, 9},
                            {GgufType::IQ4_NL, 25},
                            {GgufType::Q8_0, 7},
                            {GgufType::F16, 1},
                            {GgufType::BF16, 32},
                            {GgufType::F32, 0}}};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_vector || !tensors[i].name.starts_with("blk.")) continue;
    ++std::ranges::find(rows, types[i].type, &Row::type)->count;
  }
  return std::ranges::max_element(rows, {}, &Row::count)->number;
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
  const auto sink = [&](std::span<const std::byte> bytes) { writer.write(bytes); };
  if (type.store) return encode_written(tensor, rules, *type.store, sink);
  for (const NamedMatrix* part : tensor.parts)
    copy_blocks(part->matrix, RowOrder(rules.architecture, part->name, rules.pairing), sink);
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
  const std::string name = source.metadata.text(kNameKey);
  writer.set_string(kNameKey, name.empty() ? path.stem().string() : name);
  const bool keeps_types = keep_types(tensors, types);
  if (!keeps_types || source.metadata.find(kFileTypeKey) == nullptr)
    writer.set_integer(kFileTypeKey, count_file_type(tensors, types));
  writer.set_integer("general.quantization_version", 2);
  write_gguf_architecture(a, writer);
  const std::vector<float> divisors = write_frequency_divisors(a.rope, writer);
  if (source.tokenizer != nullptr) {
    write_gguf_vocabulary(source.tokenizer->vocabulary(), a.vocab_size, writer);
  } else {
    writer.set_string("tokenizer.ggml.model", "no_vocab");
  }
  set_ids(a, source.tokenizer, writer);
  write_gguf_metadata(source.metadata, source.generation_defaults, keeps_types, writer);

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
