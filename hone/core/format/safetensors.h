// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/dtype.h"
#include "hone/core/file/file_io.h"
#include "hone/core/shape.h"

namespace hone {

// The format's own names: "F32", "BF16", "F8_E4M3", …
std::string_view safetensors_name_of(Dtype dtype);

struct SafetensorsTensor {
  std::string name;
  Dtype dtype = Dtype::Float32;
  Shape shape;
  std::span<const std::byte> bytes;  // inside the file; may be unaligned
};

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsFile {
  std::vector<SafetensorsTensor> tensors;  // by offset
  SafetensorsMetadata metadata;
  // The value of a metadata key; null if absent.
  const std::string* find_metadata(std::string_view key) const;
};

// Reads the header and checks that the tensors tile the data exactly (no hole, no overlap, no byte
// left over) and that sizes match shapes and dtypes. Does not touch the data. `where` names the
// file in errors: Error{CorruptFile}, or Error{Unsupported} that names the tensor and its dtype.
SafetensorsFile parse_safetensors(std::span<const std::byte> file, std::string_view where);

// Writes a file whose tensors are known in advance and whose data is streamed in plan order, in
// pieces of any size. Data starts at a multiple of 64 bytes. Without commit() no file is left.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    Dtype dtype = Dtype::Float32;
    Shape shape;
  };
  // Adds all bytes of the file to `hash`, if it is not null. Throws Error{InvalidArgument} for a
  // duplicate or empty name.
  SafetensorsWriter(const std::filesystem::path& path, std::span<const Entry> plan,
                    const SafetensorsMetadata& metadata = {}, Sha256* hash = nullptr);

  void write(std::span<const std::byte> data) { file_.write(data); }
  // Throws Error{InvalidArgument} if fewer or more bytes were written than planned.
  void commit();
  Index file_bytes() const { return planned_; }

 private:
  AtomicFile file_;
  std::string path_;
  Index planned_ = 0;
};

}  // namespace hone
