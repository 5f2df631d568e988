// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/packed_file.h"

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/crc32c.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/machine/trace.h"
#include "hone/core/names.h"
#include "hone/core/progress.h"

namespace hone::infer {
namespace {

constexpr std::string_view kFormat = "1", kChecksums = "crc32c", kModel = "hone.packed.model";
constexpr Index kChecksumBytes = 4;

using Field = std::pair<std::string, std::string>;

std::array<Field, 4> fields_of(const PackedOrigin& origin) {
  return {Field{"hone.packed.format", kFormat}, Field{"hone.packed.identity", origin.identity},
          Field{"hone.packed.layout", origin.layout}, Field{"hone.packed.weights", origin.weights}};
}

void check_origin(const SafetensorsFile& file, const PackedOrigin& origin,
                  const std::string& where) {
  for (const auto& [key, wanted] : fields_of(origin)) {
    const std::string* const found = file.find_metadata(key);
    if (found == nullptr) fail_corrupt(where, concat("There is no metadata ", key, "."));
    if (*found != wanted) {
      fail_corrupt(where, concat(key, " ", wanted), quote_name(*found));
    }
  }
}

std::array<std::byte, kChecksumBytes> checksum_bytes(std::span<const std::byte> panels) {
  const std::uint32_t crc = crc32c(panels);
  std::array<std::byte, kChecksumBytes> bytes;
  std::memcpy(bytes.data(), &crc, sizeof crc);
  return bytes;
}

}  // namespace

PackedFile::PackedFile(const std::filesystem::path& path, const PackedOrigin& origin)
    : file_(path) {
  const std::string where = path.string();
  SafetensorsFile content = parse_safetensors(file_.bytes(), where);
  check_origin(content, origin, where);
  bool has_checksums = false;
  for (SafetensorsTensor& tensor : content.tensors) {
    if (tensor.dtype != Dtype::UInt8) {
      fail_corrupt(where, concat("U8 for ", quote_name(tensor.name)), name_of(tensor.dtype));
    }
    if (tensor.name == kChecksums) {
      checksums_ = tensor.bytes;
      has_checksums = true;
      continue;
    }
    if (reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % kCacheLine != 0) {
      fail_corrupt(where, concat(quote_name(tensor.name), " is not aligned to 64 bytes."));
    }
    entries_.push_back({std::move(tensor.name), tensor.bytes});
  }
  const Index expected = static_cast<Index>(entries_.size()) * kChecksumBytes;
  if (!has_checksums || static_cast<Index>(checksums_.size()) != expected) {
    fail_corrupt(where, concat(expected, " bytes of checksums"), concat(checksums_.size()));
  }
  for (const PackedEntry& entry : entries_) by_name_.emplace(entry.name, entry.panels);
}

void PackedFile::verify(Executor& executor) const {
  HONE_TRACE_ZONE("verify packed weights", {"bytes", file_.bytes().size()});
  std::atomic<Index> wrong{-1}, checked{0};
  Progress progress("checking packed weights", std::ssize(entries_), "matrices");
  executor.parallel_for(std::ssize(entries_), 1, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto crc = checksum_bytes(entries_[at].panels);
      const std::byte* const stored = checksums_.data() + i * kChecksumBytes;
      if (std::memcmp(crc.data(), stored, crc.size()) != 0) wrong = i;
      progress.update(++checked);
    }
  });
  file_.check_intact();
  if (wrong >= 0) {
    const std::string& name = entries_[static_cast<std::size_t>(wrong.load())].name;
    fail_corrupt(file_.path().string(), concat("The checksum of ", quote_name(name), " is wrong."));
  }
}

std::span<const std::byte> PackedFile::panels(const std::string& name, Index bytes) const {
  const auto at = by_name_.find(name);
  if (at == by_name_.end()) {
    fail_corrupt(file_.path().string(), concat("There is no matrix ", quote_name(name), "."));
  }
  if (static_cast<Index>(at->second.size()) != bytes) {
    fail_corrupt(file_.path().string(), concat(bytes, " bytes for ", quote_name(name)),
                 concat(at->second.size()));
  }
  return at->second;
}

void write_packed_file(const std::filesystem::path& path, const PackedOrigin& origin,
                       std::span<const PackedEntry> entries, Executor& executor) {
  HONE_TRACE_ZONE("write packed weights", {"matrices", entries.size()});
  std::vector<std::byte> checksums(entries.size() * kChecksumBytes);
  executor.parallel_for(std::ssize(entries), 1, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      const auto crc = checksum_bytes(entries[static_cast<std::size_t>(i)].panels);
      std::memcpy(checksums.data() + i * kChecksumBytes, crc.data(), crc.size());
    }
  });
  std::vector<SafetensorsWriter::Entry> plan;
  for (const PackedEntry& entry : entries) {
    plan.push_back({entry.name, Dtype::UInt8, Shape{static_cast<Index>(entry.panels.size())}});
  }
  plan.push_back(
      {std::string(kChecksums), Dtype::UInt8, Shape{static_cast<Index>(checksums.size())}});
  SafetensorsMetadata metadata{{std::string(kModel), origin.model}};
  for (auto& field : fields_of(origin)) metadata.push_back(std::move(field));
  SafetensorsWriter writer(path, plan, metadata);
  Progress progress("writing packed weights", std::ssize(entries), "matrices");
  Index written = 0;
  for (const PackedEntry& entry : entries) {
    writer.write(entry.panels);
    progress.update(++written);
  }
  writer.write(checksums);
  writer.commit();
}

}  // namespace hone::infer
