// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/artifact_manifest.h"

#include <unordered_map>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/names.h"
#include "hone/model_io/json_fields.h"

namespace hone::model_io {
namespace {

constexpr const char* kBitmask = "bitmask";

Index whole_codes(const ManifestEntry& entry, std::string_view where);
void check_sizes(const ManifestEntry& entry, std::string_view where);
std::string spec_text(const ManifestEntry& entry);

// Finds blobs by name and tracks which ones the manifest has claimed.
struct BlobTable {
  std::unordered_map<std::string_view, const SafetensorsTensor*> by_name;
  std::unordered_set<const SafetensorsTensor*> claimed;
};

void parse_spec(const JsonFields& fields, ManifestEntry& entry) {
  const std::string text = fields.string("spec").value_or("");
  entry.blocks = find_block_type(text);
  entry.dense = find_dense_type(text);
  if (entry.blocks || entry.dense) return;
  try {
    entry.spec = parse_quant_spec(text);
    if (entry.spec.kind != CodeKind::Float) return;
  } catch (const Error&) {  // reported below as a corrupt file
  }
  fields.refuse("spec", "a quantized format such as int4:g32:asym or q4_k", quote_name(text));
}

ManifestEntry parse_entry(const std::string& name, const Json& json, const std::string& where) {
  const JsonFields fields(json, concat(where, ": ", quote_name(name)));
  ManifestEntry entry;
  entry.name = name;
  parse_spec(fields, entry);
  const std::string sparse = fields.string("sparse").value_or("none");
  if (sparse != "none" && sparse != kBitmask)
    fail_unsupported(fields.where(),
                     concat("Sparse codes are not supported: ", quote_name(sparse)));
  if ((sparse == kBitmask) == entry.blocks.has_value() && (entry.blocks || entry.dense))
    fields.refuse("sparse", entry.dense ? "bitmask for values" : "none for blocks",
                  quote_name(sparse));
  entry.rows = fields.required_integer("rows");
  entry.cols = fields.required_integer("cols");
  const std::string act = fields.string("act").value_or("int8:g32");
  if (act != "int8:g32" && act != "none") fields.refuse("act", "int8:g32 or none", quote_name(act));
  entry.act_int8 = act == "int8:g32";
  if (sparse == kBitmask) {
    entry.masked = MaskedSizes{.kept = fields.required_integer("codes")};
    check_sizes(entry, fields.where());
    if (!entry.dense && entry.spec.span == ScaleSpan::Group &&
        entry.spec.group > round_up(entry.cols, 16))
      fields.refuse("spec", concat("groups of at most ", entry.cols, " columns"),
                    quote_name(spec_text(entry)));
    const Index most = whole_codes(entry, fields.where());
    if (entry.masked->kept < 0 || entry.masked->kept > most)
      fields.refuse("codes", concat("0 to ", most, " bytes"), concat(entry.masked->kept));
  }
  const BlobSizes sizes = blob_sizes(entry, fields.where());
  const auto check = [&](std::string_view key, Index bytes) {
    const Index got = fields.required_integer(key);
    if (got != bytes) fields.refuse(key, concat(bytes, " bytes"), concat(got));
  };
  if (entry.masked) check("mask", sizes.mask);
  check("codes", sizes.codes);
  check("scales", sizes.scales);
  check("zeros", sizes.zeros);
  return entry;
}

// The first `bytes` of a blob; the blob itself is padded to kBlobAlignment.
std::span<const std::byte> take_blob(BlobTable& blobs, const std::string& name, Index bytes,
                                     const std::string& where) {
  if (bytes == 0) return {};
  const auto at = blobs.by_name.find(name);
  if (at == blobs.by_name.end())
    fail_corrupt(where, concat("There is no blob ", quote_name(name), "."));
  const SafetensorsTensor& blob = *at->second;
  const Index padded = round_up(bytes, kBlobAlignment);
  if (blob.dtype != Dtype::UInt8 || blob.shape.rank() != 1 || blob.shape[0] != padded)
    fail_corrupt(where, concat(padded, " bytes of U8 in ", quote_name(name)),
                 concat(name_of(blob.dtype), " ", to_text(blob.shape)));
  blobs.claimed.insert(&blob);
  return blob.bytes.first(static_cast<std::size_t>(bytes));
}

std::string spec_text(const ManifestEntry& entry) {
  if (entry.dense) return std::string(name_of(*entry.dense));
  return entry.blocks ? block_type_text(*entry.blocks) : to_text(entry.spec);
}

// The codes of an entry whose blobs are in `blobs`.
StoredMatrix to_stored(const ManifestEntry& entry, BlobTable& blobs, std::vector<Buffer>& owned,
                       const std::string& where) {
  const BlobSizes sizes = blob_sizes(entry, where);
  StoredMatrix stored;
  stored.layout = entry.blocks  ? WeightLayout::GgufBlocks
                  : entry.dense ? WeightLayout::Dense
                                : WeightLayout::Canonical;
  stored.rows = entry.rows;
  stored.cols = entry.cols;
  stored.act_int8 = entry.act_int8;
  const auto blob = [&](std::string_view part, Index bytes) {
    return take_blob(blobs, concat(entry.name, part), bytes, where);
  };
  const auto codes = blob(".codes", sizes.codes);
  if (entry.blocks) {
    stored.block_type = *entry.blocks;
    stored.bytes = codes;
    return stored;
  }
  stored.dtype = entry.dense.value_or(stored.dtype);
  stored.quant = {.spec = entry.spec,
                  .rows = entry.rows,
                  .cols = entry.cols,
                  .codes = codes,
                  .scales = blob(".scales", sizes.scales),
                  .zeros = blob(".zeros", sizes.zeros)};
  if (!entry.masked) return stored;
  const std::string place = concat(where, ": ", quote_name(entry.name));
  owned.push_back(expand_masked(stored, blob(".mask", sizes.mask), codes, place));
  (entry.dense ? stored.bytes : stored.quant.codes) = owned.back().span();
  if (entry.dense) stored.quant = {};
  return stored;
}

void check_sizes(const ManifestEntry& entry, std::string_view where) {
  constexpr Index kMaxSide = Index{1} << 24, kMaxGroup = Index{1} << 16;
  const Index rows = entry.rows, cols = entry.cols;
  if (rows < 1 || cols < 1 || rows > kMaxSide || cols > kMaxSide)
    fail_corrupt(where, concat("rows and columns of 1 to ", kMaxSide),
                 concat("[", rows, ", ", cols, "]"));
  if (entry.spec.span == ScaleSpan::Group && entry.spec.group > kMaxGroup)
    fail_corrupt(where, concat("a group size of at most ", kMaxGroup), concat(entry.spec.group));
}

// The bytes of all codes or values, if none is left out.
Index whole_codes(const ManifestEntry& entry, std::string_view where) {
  return checked_mul(entry.rows,
                     entry.dense ? checked_mul(entry.cols, bytes_of(*entry.dense), where)
                                 : entry.spec.code_bytes_per_row(entry.cols),
                     where);
}

}  // namespace

BlobSizes blob_sizes(const ManifestEntry& entry, std::string_view where) {
  const auto& [name, spec, blocks, dense, rows, cols, act_int8, algorithm, masked] = entry;
  check_sizes(entry, where);
  if (blocks) {
    const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(*blocks), where);
    if (cols % info.block != 0)
      fail_corrupt(where, concat("columns that are a multiple of ", info.block), concat(cols));
    return {.codes = checked_mul(rows, cols / info.block * info.bytes, where)};
  }
  BlobSizes sizes;
  if (masked) sizes.mask = checked_mul(rows, mask_bytes_per_row(cols), where);
  sizes.codes = masked ? masked->kept : whole_codes(entry, where);
  if (dense) return sizes;
  const Index scales =
      spec.span == ScaleSpan::Tensor ? 1 : checked_mul(rows, spec.groups_per_row(cols), where);
  sizes.scales = checked_mul(scales, bytes_of(spec.scale_dtype), where);
  sizes.zeros = spec.symmetric ? 0 : scales;
  return sizes;
}

std::string write_manifest(std::span<const ManifestEntry> entries) {
  Json manifest = Json::object();
  for (const ManifestEntry& entry : entries) {
    const BlobSizes sizes = blob_sizes(entry, entry.name);
    Json row = {{"spec", spec_text(entry)},
                {"sparse", entry.masked ? kBitmask : "none"},
                {"rows", entry.rows},
                {"cols", entry.cols},
                {"codes", sizes.codes},
                {"scales", sizes.scales},
                {"zeros", sizes.zeros},
                {"algorithm", entry.algorithm},
                {"act", entry.act_int8 ? "int8:g32" : "none"}};
    if (entry.masked) row["mask"] = sizes.mask;
    manifest.push_back({entry.name, std::move(row)});
  }
  return manifest.dump();
}

void extract_quantized(SafetensorsFile& file, std::vector<NamedMatrix>& out,
                       std::vector<Buffer>& owned, const std::string& where) {
  const std::string* version = file.find_metadata(kFormatKey);
  if (version == nullptr || *version != kFormatVersion)
    fail_corrupt(where, concat(kFormatKey, " ", kFormatVersion),
                 version == nullptr ? "none" : quote_name(*version));
  const std::string place = concat(where, ": ", kManifestKey);
  const Json manifest = parse_json(*file.find_metadata(kManifestKey), place, {.depth = 4});
  if (!manifest.is_object()) fail_corrupt(place, "a JSON object", manifest.type_name());
  BlobTable blobs;
  for (const SafetensorsTensor& tensor : file.tensors) blobs.by_name.emplace(tensor.name, &tensor);
  for (const auto& [name, json] : manifest.items()) {
    const ManifestEntry entry = parse_entry(name, json, place);
    out.push_back({name, to_stored(entry, blobs, owned, where)});
  }
  std::erase_if(file.tensors,
                [&](const SafetensorsTensor& tensor) { return blobs.claimed.contains(&tensor); });
}

}  // namespace hone::model_io
