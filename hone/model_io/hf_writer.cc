// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/progress.h"
#include "hone/model_io/family/written_tensor.h"
#include "hone/model_io/hf_config.h"

namespace hone::model_io {
namespace {

Dtype dtype_of(StoreType type) {
  if (type == StoreType::F16) return Dtype::Float16;
  return type == StoreType::BF16 ? Dtype::BFloat16 : Dtype::Float32;
}

// How matrices are stored: all in one type, or in their own, and quantized ones in `decoded`.
struct FolderTypes {
  std::optional<StoreType> requested;
  StoreType decoded = StoreType::F16;

  StoreType of_part(const NamedMatrix& tensor) const {
    if (requested) return *requested;
    const std::optional<StoreType> own = stored_type(tensor.matrix);
    return own && !is_quantized(*own) ? *own : decoded;
  }
  // Stacked parts of different types become f32.
  StoreType of(const WrittenTensor& tensor) const {
    const StoreType first = of_part(*tensor.parts.front());
    const bool same = std::ranges::all_of(
        tensor.parts, [&](const NamedMatrix* part) { return of_part(*part) == first; });
    return same ? first : StoreType::F32;
  }
};

// The type of most elements.
StoreType main_type(std::span<const WrittenTensor> tensors, const FolderTypes& types) {
  std::map<StoreType, Index> elements;
  for (const WrittenTensor& tensor : tensors)
    elements[types.of(tensor)] += tensor.rows * tensor.cols;
  return std::ranges::max_element(elements, {}, [](const auto& one) { return one.second; })->first;
}

}  // namespace

WriteReport write_hugging_face(const std::filesystem::path& path, const ModelSource& source,
                               std::optional<StoreType> type) {
  const std::string where = path.string();
  HONE_CHECK(!type || !is_quantized(*type), where, "f32, f16 or bf16", name_of(*type));
  const Family& family = family_of(source.architecture);
  const std::vector<WrittenTensor> tensors =
      written_tensors(source, FileFormat::HuggingFace, where);
  WriteReport report;
  report.decoded = count_quantized(source.tensors);
  FolderTypes types{type};
  if (!type && report.decoded > 0) types.decoded = choose_decoded_type(source.tensors);
  report.decoded_type = type.value_or(types.decoded);
  const Json config =
      write_hf_config(source.architecture, torch_name_of(main_type(tensors, types)));

  std::vector<SafetensorsWriter::Entry> plan;
  for (const WrittenTensor& tensor : tensors) {
    plan.push_back({tensor.name, dtype_of(types.of(tensor)),
                    tensor.is_vector ? Shape{tensor.cols} : Shape{tensor.rows, tensor.cols}});
  }
  AtomicFolder folder(path, check_model_folder);
  SafetensorsWriter writer(folder.staging() / "model.safetensors", plan, {{"format", "pt"}});
  const StorageRules rules{source.architecture, RopePairing::HalfSplit,
                           norm_offset_in(family, FileFormat::HuggingFace)};
  Progress progress("writing", std::ssize(tensors), "tensors");
  for (const WrittenTensor& tensor : tensors) {
    encode_written(tensor, rules, types.of(tensor),
                   [&](std::span<const std::byte> bytes) { writer.write(bytes); });
    progress.update(++report.tensors);
  }
  writer.commit();
  write_hugging_face_texts(folder.staging(), source, config);
  report.bytes = bytes_in(folder.staging());
  source.check_intact();
  folder.commit();
  return report;
}

}  // namespace hone::model_io
