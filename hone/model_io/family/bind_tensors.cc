// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/family/bind_tensors.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"

namespace hone::model_io {
namespace {

constexpr std::string_view kOutputName = "lm_head.weight";
constexpr std::string_view kEmbeddingName = "model.embed_tokens.weight";

void check_shape(const FileTensor& wanted, const NamedMatrix& tensor, const std::string& where) {
  const StoredMatrix& matrix = tensor.matrix;
  if (matrix.rows == wanted.rows && matrix.cols == wanted.cols &&
      tensor.is_vector == wanted.is_vector)
    return;
  fail_corrupt(where,
               concat("shape ", shape_text(wanted.rows, wanted.cols, wanted.is_vector), " for ",
                      wanted.name),
               shape_text(matrix.rows, matrix.cols, tensor.is_vector));
}

void check_dense(const NamedMatrix& tensor, std::string_view what, const std::string& where) {
  if (tensor.matrix.layout != WeightLayout::Dense)
    fail_unsupported(where, concat("f32, f16 or bf16 for ", what, " ", quote_name(tensor.name)),
                     "a quantized one");
}

template <class Element>
void transpose(const StoredMatrix& from, Buffer& to) {
  const auto* in = reinterpret_cast<const std::byte*>(from.bytes.data());
  Element* out = to.as<Element>();
  for (Index row = 0; row < from.rows; ++row) {
    for (Index col = 0; col < from.cols; ++col)
      std::memcpy(out + col * from.rows + row,
                  in + (row * from.cols + col) * static_cast<Index>(sizeof(Element)),
                  sizeof(Element));
  }
}

// The transposed matrix, in memory that the model owns.
StoredMatrix transposed(LoadedModel& model, const NamedMatrix& tensor, const std::string& where) {
  check_dense(tensor, "the transposed matrix", where);
  const StoredMatrix& from = tensor.matrix;
  const Index size = bytes_of(from.dtype);
  if (size != 4 && size != 2)
    fail_unsupported(where, concat("f32, f16 or bf16 for ", quote_name(tensor.name)),
                     name_of(from.dtype));
  Buffer& memory = model.owned.emplace_back(static_cast<Index>(from.bytes.size()));
  size == 4 ? transpose<std::uint32_t>(from, memory) : transpose<std::uint16_t>(from, memory);
  StoredMatrix out = from;
  std::swap(out.rows, out.cols);
  out.bytes = memory.span();
  return out;
}

// Rows [first, first + rows) of a matrix, or that many elements of a vector.
StoredMatrix part_of(const NamedMatrix& tensor, const PlannedTensor& part, Index first,
                     const std::string& where) {
  StoredMatrix out = tensor.matrix;
  if (part.is_vector) {
    check_dense(tensor, "the vector", where);
    const Index size = bytes_of(out.dtype);
    out.cols = part.cols;
    out.bytes = out.bytes.subspan(static_cast<std::size_t>(first * size),
                                  static_cast<std::size_t>(part.cols * size));
    return out;
  }
  const auto per_row = static_cast<Index>(out.bytes.size()) / out.rows;
  out.rows = part.rows;
  out.bytes = out.bytes.subspan(static_cast<std::size_t>(first * per_row),
                                static_cast<std::size_t>(part.rows * per_row));
  return out;
}

void add_parts(LoadedModel& model, const FileTensor& wanted, NamedMatrix tensor,
               std::vector<NamedMatrix>& out, const std::string& where) {
  if (wanted.is_transposed) tensor.matrix = transposed(model, tensor, where);
  if (wanted.parts.size() == 1) {
    tensor.name = wanted.parts.front().name;
    out.push_back(std::move(tensor));
    return;
  }
  Index first = 0;
  for (const PlannedTensor& part : wanted.parts) {
    out.push_back({part.name, part_of(tensor, part, first, where), part.is_vector});
    first += part.is_vector ? part.cols : part.rows;
  }
}

// The name as the table has it: files may lack the model's prefix ("transformer.").
std::string_view without_prefix(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

bool same_values(const StoredMatrix& a, const StoredMatrix& b) {
  if (a.rows != b.rows || a.cols != b.cols) return false;
  if (a.layout == WeightLayout::Dense && b.layout == WeightLayout::Dense && a.dtype == b.dtype)
    return std::ranges::equal(a.bytes, b.bytes);
  std::vector<float> of_a(static_cast<std::size_t>(a.cols)), of_b(of_a.size());
  for (Index row = 0; row < a.rows; ++row) {
    decode_row(a, row, of_a);
    decode_row(b, row, of_b);
    if (of_a != of_b) return false;
  }
  return true;
}

void settle_output_matrix(LoadedModel& model, std::string_view prefix, const std::string& where) {
  if (!model.arch.tied_embeddings) return;
  const auto find = [&](std::string_view name) {
    return std::ranges::find_if(model.matrices, [&](const NamedMatrix& tensor) {
      return without_prefix(tensor.name, prefix) == without_prefix(name, prefix);
    });
  };
  const auto head = find(kOutputName);
  if (head == model.matrices.end()) return;
  const std::vector<FileTensor> wanted = file_tensors(model.arch, FileFormat::HuggingFace);
  const auto embedding = find(std::ranges::find_if(wanted, [](const FileTensor& tensor) {
                                return tensor.parts.front().name == kEmbeddingName;
                              })->name);
  if (embedding == model.matrices.end() || same_values(head->matrix, embedding->matrix)) {
    model.matrices.erase(head);
    return;
  }
  model.arch.tied_embeddings = false;
  log_warning(concat(where, ": ", kOutputName,
                     " differs from the embedding and is used, although tie_word_embeddings is "
                     "true"));
}

}  // namespace

bool is_ignorable(std::string_view name, const Architecture& architecture) {
  return std::ranges::any_of(family_of(architecture).ignorable,
                             [&](std::string_view end) { return name.ends_with(end); });
}

void bind_tensors(LoadedModel& model, FileFormat format, const std::string& where) {
  const std::string_view prefix =
      format == FileFormat::HuggingFace ? family_of(model.arch).model_prefix : "";
  if (format == FileFormat::HuggingFace) settle_output_matrix(model, prefix, where);
  const std::vector<FileTensor> wanted = file_tensors(model.arch, format);
  std::unordered_map<std::string_view, const FileTensor*> by_name;
  for (const FileTensor& tensor : wanted)
    by_name.emplace(without_prefix(tensor.name, prefix), &tensor);
  std::vector<NamedMatrix> bound;
  std::unordered_set<const FileTensor*> seen;
  std::string unknown;
  for (NamedMatrix& tensor : model.matrices) {
    const auto found = by_name.find(without_prefix(tensor.name, prefix));
    if (found == by_name.end()) {
      if (unknown.empty()) unknown = tensor.name;
      continue;
    }
    if (!seen.insert(found->second).second)
      fail_corrupt(where, concat("The tensor ", quote_name(tensor.name), " occurs twice."));
    check_shape(*found->second, tensor, where);
    add_parts(model, *found->second, std::move(tensor), bound, where);
  }
  for (const FileTensor& tensor : wanted) {
    if (!seen.contains(&tensor))
      fail_corrupt(where, concat("There is no tensor ", tensor.name, " of shape ",
                                 shape_text(tensor.rows, tensor.cols, tensor.is_vector), "."));
  }
  if (!unknown.empty())
    fail_corrupt(where, concat(quote_name(unknown), " is not a tensor of this ", model.arch.family,
                               " model."));
  model.matrices = std::move(bound);
}

}  // namespace hone::model_io
