// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/progress.h"
#include "hone/core/version.h"
#include "hone/model_io/artifact_manifest.h"
#include "hone/model_io/family/written_tensor.h"
#include "hone/model_io/hf_config.h"

namespace hone::model_io {
namespace {

// How one tensor is written.
struct Item {
  const NamedMatrix* tensor = nullptr;
  bool packed = false;              // written as an entry of the manifest
  StoreType type = StoreType::F32;  // of a dense tensor, or of codes made here
  ManifestEntry entry;              // if packed
};

Item plan_item(const NamedMatrix& tensor, std::optional<StoreType> requested,
               const std::string& algorithm, WriteReport& report) {
  Item item;
  item.tensor = &tensor;
  const StoredMatrix& matrix = tensor.matrix;
  item.entry = {.name = tensor.name,
                .spec = {},
                .blocks = {},
                .dense = {},
                .rows = matrix.rows,
                .cols = matrix.cols,
                .act_int8 = matrix.act_int8,
                .algorithm = algorithm};
  const bool keeps_codes = !requested || is_quantized(*requested);
  if (!requested && !tensor.is_vector) item.entry.masked = masked_sizes(matrix);
  if (keeps_codes && matrix.layout == WeightLayout::Canonical) {
    item.packed = true;
    item.entry.spec = matrix.quant.spec;
    return item;
  }
  if (item.entry.masked) {
    item.packed = true;
    item.entry.dense = matrix.dtype;
    return item;
  }
  if (!requested && matrix.layout == WeightLayout::GgufBlocks && !stored_type(matrix)) {
    item.packed = true;
    item.entry.blocks = matrix.block_type;
    return item;
  }
  item.type = choose_type(tensor, requested, report);
  item.packed = is_quantized(item.type);
  if (item.packed) item.entry.spec = canonical_spec(item.type);
  return item;
}

std::vector<SafetensorsWriter::Entry> plan_file(const std::vector<Item>& items) {
  std::vector<SafetensorsWriter::Entry> plan;
  const auto add_blob = [&](const std::string& name, Index bytes) {
    if (bytes > 0) plan.push_back({name, Dtype::UInt8, Shape{round_up(bytes, kBlobAlignment)}});
  };
  for (const Item& item : items) {  // Blobs come first, so that each stays aligned to 64 bytes.
    if (!item.packed) continue;
    const ManifestEntry& entry = item.entry;
    const BlobSizes sizes = blob_sizes(entry, entry.name);
    add_blob(entry.name + ".mask", sizes.mask);
    add_blob(entry.name + ".codes", sizes.codes);
    add_blob(entry.name + ".scales", sizes.scales);
    add_blob(entry.name + ".zeros", sizes.zeros);
  }
  for (const Item& item : items) {
    if (item.packed) continue;
    const StoredMatrix& matrix = item.tensor->matrix;
    const Dtype dtype = item.type == StoreType::F32   ? Dtype::Float32
                        : item.type == StoreType::F16 ? Dtype::Float16
                                                      : Dtype::BFloat16;
    plan.push_back({item.tensor->name, dtype,
                    item.tensor->is_vector ? Shape{matrix.cols} : Shape{matrix.rows, matrix.cols}});
  }
  return plan;
}

// What fills a blob of so many bytes.
void write_gap(SafetensorsWriter& writer, std::size_t bytes) {
  const auto size = static_cast<Index>(bytes);
  const std::vector<std::byte> gap(static_cast<std::size_t>(round_up(size, kBlobAlignment) - size));
  writer.write(gap);
}

void write_blob(SafetensorsWriter& writer, std::span<const std::byte> bytes) {
  writer.write(bytes);
  write_gap(writer, bytes.size());
}

void write_codes(SafetensorsWriter& writer, const Item& item, const RowOrder& order) {
  const StoredMatrix& matrix = item.tensor->matrix;
  if (item.entry.blocks) {
    copy_blocks(matrix, order, [&](std::span<const std::byte> row) { writer.write(row); });
    return write_gap(writer, matrix.bytes.size());
  }
  std::vector<std::byte> mask, kept;
  for (Index row = 0; item.entry.masked && row < matrix.rows; ++row)
    append_masked_row(matrix, order.source(row), mask, kept);
  if (!mask.empty()) write_blob(writer, mask);
  if (item.entry.dense) {
    if (!kept.empty()) write_blob(writer, kept);
    return;
  }
  CanonicalMatrix codes = matrix.layout == WeightLayout::Canonical
                              ? permute_canonical(matrix, order)
                              : encode_canonical(*item.tensor, order, item.type);
  if (item.entry.masked) codes.codes = std::move(kept);
  if (!codes.codes.empty()) write_blob(writer, codes.codes);
  write_blob(writer, codes.scales);
  if (!codes.zeros.empty()) write_blob(writer, codes.zeros);
}

void write_items(SafetensorsWriter& writer, const std::vector<Item>& items,
                 const StorageRules& rules) {
  Progress progress("writing", std::ssize(items), "tensors");
  Index written = 0;
  for (const bool packed : {true, false}) {
    for (const Item& item : items) {
      if (item.packed != packed) continue;
      progress.update(written++);
      if (packed) {
        write_codes(writer, item, RowOrder(rules.architecture, item.tensor->name, rules.pairing));
      } else {
        encode_part(*item.tensor, rules, item.type,
                    [&](std::span<const std::byte> bytes) { writer.write(bytes); });
      }
    }
  }
}

SafetensorsMetadata describe(const std::vector<Item>& items, const ArtifactNotes& notes) {
  std::vector<ManifestEntry> entries;
  for (const Item& item : items) {
    if (item.packed) entries.push_back(item.entry);
  }
  SafetensorsMetadata metadata{{std::string(kFormatKey), std::string(kFormatVersion)},
                               {std::string(kManifestKey), write_manifest(entries)},
                               {"hone.toolkit", concat("hone ", version_number())}};
  metadata.insert(metadata.end(), notes.metadata.begin(), notes.metadata.end());
  return metadata;
}

}  // namespace

WriteReport write_artifact(const std::filesystem::path& path, const ModelSource& source,
                           std::optional<StoreType> type, const ArtifactNotes& notes) {
  const std::string where = path.string();
  WriteReport report;
  std::vector<Item> items;
  for (const NamedMatrix* tensor : order_tensors(source, where))
    items.push_back(plan_item(*tensor, type, notes.algorithm, report));
  Json config = write_hf_config(source.architecture, torch_name_of(StoreType::F32));
  mark_as_artifact(config, kFormatVersion);

  AtomicFolder folder(path, check_model_folder);
  SafetensorsWriter writer(folder.staging() / "model.safetensors", plan_file(items),
                           describe(items, notes));
  write_items(writer, items,
              {source.architecture, RopePairing::HalfSplit,
               norm_offset_in(family_of(source.architecture), FileFormat::HuggingFace)});
  writer.commit();
  write_hugging_face_texts(folder.staging(), source, std::move(config));
  for (const auto& [name, text] : notes.files) {
    HONE_CHECK(name == std::filesystem::path(name).filename(), where, "a plain file name", name);
    write_text_file(folder.staging() / name, text);
  }
  report.tensors = static_cast<Index>(items.size());
  report.bytes = bytes_in(folder.staging());
  source.check_intact();
  folder.commit();
  return report;
}

}  // namespace hone::model_io
