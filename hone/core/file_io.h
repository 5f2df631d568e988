// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "hone/core/index.h"

namespace hone {

// Writes a file under a temporary name beside it; commit() syncs it and renames it into place, so
// that a reader sees the old file or the new one, never a part. Dropped without commit(): the
// temporary is removed. Every failure (disk full, no permission) is one Error{Io} naming the file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  Index bytes_written() const { return written_; }
  void commit();

 private:
  void flush();

  std::filesystem::path path_, temporary_;
  std::string pending_;
  Index written_ = 0;
  int descriptor_ = -1;
};

// The same for a folder of files: everything is written below staging(); commit() syncs all of it
// and renames it to `path`. An existing folder of that name is replaced, after its new version is
// complete; `path` may not be a file.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path path);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  const std::filesystem::path& staging() const { return staging_; }
  void commit();

 private:
  std::filesystem::path path_, staging_;
  bool committed_ = false;
};

// Error{InvalidArgument} where writing `out`, a file or a folder that is then replaced, would
// change or remove `input`: the same file or folder, or one within the other, also behind links,
// those in a folder included.
void check_output_spares(const std::filesystem::path& out, const std::filesystem::path& input);

// Removes temporaries that a killed run left in `folder` (hone's own names only, and only those
// whose process is gone).
void remove_stale_temporaries(const std::filesystem::path& folder);

// For an input that open(2) has refused, errno telling why: Error{NotFound}, or Error{Resource}
// when it was for want of descriptors or memory.
[[noreturn]] void fail_to_open(const std::filesystem::path& path);

// A descriptor for reading. Error{CorruptFile} for what is no regular file: a folder, a device, a
// pipe, which might keep its reader waiting for ever.
int open_regular_file(const std::filesystem::path& path);

// A quarter of the machine's memory: more text than that is no text to work on here.
Index most_text_bytes();
// The whole file; Error{NotFound} when absent or not to be opened, Error{CorruptFile} above
// max_bytes and for what is no regular file, but for streams below /dev and /proc.
std::string read_text_file(const std::filesystem::path& path, Index max_bytes = most_text_bytes());
// Through AtomicFile.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace hone
