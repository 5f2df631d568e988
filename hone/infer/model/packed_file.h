// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hone/core/file/mmap_file.h"
#include "hone/core/thread/executor.h"

namespace hone::infer {

// The origin of packed weights. They can be used only if all fields but `model` are equal.
struct PackedOrigin {
  std::string identity;  // ModelFile::identity()
  std::string layout;    // kernels::packed_layout_id()
  std::string weights;   // "file", "q8_0", "q4_0"
  std::string model;     // path of the model, for information only
};

struct PackedEntry {
  std::string name;
  std::span<const std::byte> panels;
};

// Packed matrices in a mapped safetensors file. It has one U8 tensor for the panels of each matrix,
// a U8 tensor "crc32c" with a 4-byte checksum of each in the same order, and the origin as
// metadata.
class PackedFile {
 public:
  // Throws Error{CorruptFile} for a file that does not have this form or has another origin. Reads
  // only the header.
  PackedFile(const std::filesystem::path& path, const PackedOrigin& origin);

  // Reads everything and throws Error{CorruptFile} that names a matrix whose checksum is wrong.
  void verify(Executor& executor) const;
  // The panels of a matrix, aligned to 64 bytes. Throws Error{CorruptFile} if it is absent or has
  // another size.
  std::span<const std::byte> panels(const std::string& name, Index bytes) const;
  bool is_damaged() const { return file_.is_damaged(); }
  void check_intact() const { file_.check_intact(); }

 private:
  MmapFile file_;
  std::vector<PackedEntry> entries_;
  std::span<const std::byte> checksums_;
  std::unordered_map<std::string_view, std::span<const std::byte>> by_name_;
};

// Writes such a file atomically. Throws Error{Io}.
void write_packed_file(const std::filesystem::path& path, const PackedOrigin& origin,
                       std::span<const PackedEntry> entries, Executor& executor);

}  // namespace hone::infer
