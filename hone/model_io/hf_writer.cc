// SPDX-License-Identifier: Apache-2.0
#include "hone/core/check.h"
#include "hone/core/file_io.h"
#include "hone/core/progress.h"
#include "hone/core/safetensors.h"
#include "hone/model_io/family/written_tensor.h"
#include "hone/model_io/hf_config.h"

namespace hone::model_io {
namespace {

Dtype dtype_of(StoreType type) {
  if (type == StoreType::F16) return Dtype::Float16;
  return type == StoreType::BF16 ? Dtype::BFloat16 : Dtype::Float32;
}

StoreType type_of_part(const NamedMatrix& tensor, std::optional<StoreType> requested,
                       const std::string& where) {
  if (requested) return *requested;
  const std::optional<StoreType> own = stored_type(tensor.matrix);
  HONE_REQUIRE(own && !is_quantized(*own), where,
               concat("Tensor ", tensor.name,
                      " is quantized, so a type of f32, f16 or bf16 must be given."));
  return *own;
}

// Stacked parts of different types become f32.
StoreType dense_type_of(const WrittenTensor& tensor, std::optional<StoreType> requested,
                        const std::string& where) {
  const StoreType first = type_of_part(*tensor.parts.front(), requested, where);
  for (const NamedMatrix* part : tensor.parts) {
    if (type_of_part(*part, requested, where) != first) return StoreType::F32;
  }
  return first;
}

}  // namespace

WriteReport write_hugging_face(const std::filesystem::path& path, const ModelSource& source,
                               std::optional<StoreType> type) {
  const std::string where = path.string();
  HONE_CHECK(!type || !is_quantized(*type), where, "f32, f16 or bf16", name_of(*type));
  const Family& family = family_of(source.architecture);
  const std::vector<WrittenTensor> tensors =
      written_tensors(source, FileFormat::HuggingFace, where);
  const StoreType main_type = dense_type_of(tensors.front(), type, where);
  const Json config = write_hf_config(source.architecture, torch_name_of(main_type));

  std::vector<SafetensorsWriter::Entry> plan;
  for (const WrittenTensor& tensor : tensors) {
    plan.push_back({tensor.name, dtype_of(dense_type_of(tensor, type, where)),
                    tensor.is_vector ? Shape{tensor.cols} : Shape{tensor.rows, tensor.cols}});
  }
  AtomicFolder folder(path, check_model_folder);
  SafetensorsWriter writer(folder.staging() / "model.safetensors", plan, {{"format", "pt"}});
  const StorageRules rules{source.architecture, RopePairing::HalfSplit,
                           norm_offset_in(family, FileFormat::HuggingFace)};
  WriteReport report;
  Progress progress("writing", std::ssize(tensors), "tensors");
  for (const WrittenTensor& tensor : tensors) {
    encode_written(tensor, rules, dense_type_of(tensor, type, where),
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
