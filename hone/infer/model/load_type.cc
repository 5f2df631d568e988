// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/load_type.h"

#include <algorithm>
#include <cstring>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/model_io/matrix_encoder.h"
#include "hone/model_io/write_plan.h"

namespace hone::infer {
namespace {

using model_io::KeptTensor;
using model_io::NamedMatrix;
using model_io::stored_type;
using model_io::StoreType;

constexpr Index kDroppedBytes = Index{8} << 20;  // of the file, at a time

std::string stored_name(const StoredMatrix& matrix) {
  if (const auto type = stored_type(matrix)) return std::string(name_of(*type));
  if (matrix.layout == WeightLayout::Canonical) return to_text(matrix.quant.spec);
  return std::string(gguf_type_info(static_cast<std::uint32_t>(matrix.block_type), "load").name);
}

Index bytes_per_row(const StoredMatrix& matrix) {
  if (matrix.layout == WeightLayout::Dense) return matrix.cols * bytes_of(matrix.dtype);
  const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(matrix.block_type), "load");
  return matrix.cols / info.block * info.bytes;
}

// Rows [begin, end) of a dense matrix.
NamedMatrix rows_of(const NamedMatrix& tensor, Index begin, Index end) {
  NamedMatrix part = tensor;
  const Index per_row = bytes_per_row(tensor.matrix);
  part.matrix.rows = end - begin;
  part.matrix.bytes = tensor.matrix.bytes.subspan(
      static_cast<std::size_t>(begin * per_row), static_cast<std::size_t>((end - begin) * per_row));
  return part;
}

void encode_rows(const NamedMatrix& rows, StoreType type, std::byte* to) {
  model_io::encode_tensor(rows, model_io::RowOrder(), type, [&to](std::span<const std::byte> row) {
    std::memcpy(to, row.data(), row.size());
    to += row.size();
  });
}

}  // namespace

LoadType type_on_load(const NamedMatrix& tensor, LoadType type, std::vector<KeptTensor>& kept) {
  if (!type || tensor.is_vector) return std::nullopt;
  const StoredMatrix& matrix = tensor.matrix;
  if (matrix.layout != WeightLayout::Dense) {
    if (stored_type(matrix) != type) {
      kept.push_back({tensor.name, stored_name(matrix), "the file has it quantized"});
    }
    return std::nullopt;
  }
  model_io::WriteReport report;
  const StoreType chosen = model_io::choose_type(tensor, type, report);
  kept.insert(kept.end(), report.kept.begin(), report.kept.end());
  return stored_type(matrix) == chosen ? std::nullopt : LoadType(chosen);
}

StoredMatrix describe_on_load(const StoredMatrix& matrix, StoreType type) {
  StoredMatrix out;
  out.rows = matrix.rows;
  out.cols = matrix.cols;
  if (model_io::is_quantized(type)) {
    out.layout = WeightLayout::GgufBlocks;
    out.block_type = type == StoreType::Q8_0 ? GgufType::Q8_0 : GgufType::Q4_0;
  } else {
    out.dtype = type == StoreType::F16    ? Dtype::Float16
                : type == StoreType::BF16 ? Dtype::BFloat16
                                          : Dtype::Float32;
  }
  return out;
}

StoredMatrix encode_on_load(const model_io::ModelFile& file, const NamedMatrix& tensor,
                            StoreType type, Executor& executor, Buffer& memory) {
  const StoredMatrix& matrix = tensor.matrix;
  HONE_TRACE_ZONE("quantize", {"rows", matrix.rows}, {"cols", matrix.cols});
  StoredMatrix out = describe_on_load(matrix, type);
  const Index per_row = bytes_per_row(out);
  memory = Buffer(matrix.rows * per_row);
  out.bytes = memory.span();
  const Index step = std::max<Index>(kDroppedBytes / std::max<Index>(bytes_per_row(matrix), 1), 1);
  for (Index first = 0; first < matrix.rows; first += step) {
    const Index count = std::min(step, matrix.rows - first);
    executor.parallel_for(count, 16, [&](Index begin, Index end, int) {
      encode_rows(rows_of(tensor, first + begin, first + end), type,
                  memory.data() + (first + begin) * per_row);
    });
    file.drop_pages(rows_of(tensor, first, first + count));
  }
  file.drop_pages(tensor);
  return out;
}

void decode_row_on_load(const NamedMatrix& tensor, StoreType type, Index row,
                        std::span<float> out) {
  StoredMatrix encoded = describe_on_load(tensor.matrix, type);
  encoded.rows = 1;
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_per_row(encoded)));
  encode_rows(rows_of(tensor, row, row + 1), type, bytes.data());
  encoded.bytes = bytes;
  decode_row(encoded, 0, out);
}

}  // namespace hone::infer
