// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "hone/core/index.h"

namespace hone {

class Sha256;

// Writes a file under a temporary name next to it. commit() syncs it and renames it into place, so
// that a reader sees the old file or the new one, never a part. The destructor removes the
// temporary if commit() was not called. Every failure (disk full, no permission) throws an
// Error{Io} that names the file.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  Index bytes_written() const { return written_; }
  // Also adds all bytes written from now on to `hash`, which must outlive the writing.
  void hash_into(Sha256& hash) { hash_ = &hash; }
  void commit();

 private:
  void flush();
  void write_out(std::string_view text);

  std::filesystem::path name_;  // as passed in, for messages
  std::filesystem::path path_, temporary_;
  std::string pending_;
  Sha256* hash_ = nullptr;
  Index written_ = 0;
  int descriptor_ = -1;
};

// Writes a folder of files in the same way. All files are written below staging(); commit() syncs
// them and renames the folder to `path`. An existing folder is replaced once the new one is
// complete. `path` may be neither a file nor a folder that contains the current directory.
class AtomicFolder {
 public:
  // Throws if `folder` must not be replaced. The argument may have a temporary name.
  using Check = std::function<void(const std::filesystem::path& folder)>;

  // Calls `check` for an existing folder now. commit() calls it again for the folder that exists by
  // then, and keeps that folder if `check` throws.
  explicit AtomicFolder(const std::filesystem::path& path, Check check = {});
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  const std::filesystem::path& staging() const { return staging_; }
  void commit();

 private:
  void check(const std::filesystem::path& folder) const;
  void replace();

  std::filesystem::path name_;  // as passed in, for messages
  std::filesystem::path path_, staging_;
  Check check_;
  int descriptor_ = -1;  // of staging_, locked
  bool committed_ = false;
};

// Returns the file or folder that writing `path` creates or replaces. The result is absolute, has
// no slash at its end, follows links and resolves "..", even if folders on the way do not exist
// yet. Code that checks an output must check this path. Throws Error{Io} for links that lead in a
// circle.
std::filesystem::path output_target(const std::filesystem::path& path);

// Throws Error{InvalidArgument} if replacing the folder `out` would remove the current directory.
void check_output_spares_current(const std::filesystem::path& out);

// Throws Error{InvalidArgument} if replacing `out` would change or remove `input`: if both exist
// and `input` is `out` or lies within it. Follows symbolic links.
void check_output_excludes(const std::filesystem::path& out, const std::filesystem::path& input);
// Like check_output_excludes(); also throws if `out` exists and lies within the folder `input`, or
// is the target of a link in `input`.
void check_output_spares(const std::filesystem::path& out, const std::filesystem::path& input);

// Throws Error{InvalidArgument} if `out`, which need not exist, is the folder `input` or lies
// within it. Otherwise the next run would read the output as input. Follows symbolic links.
void check_output_outside(const std::filesystem::path& out, const std::filesystem::path& input);

// Removes temporaries that killed runs left in `folder`. Removes only hone's own names, and only if
// their process has ended, even in another container or machine that shares the folder.
void remove_stale_temporaries(const std::filesystem::path& folder);

// Reports a failed open(2) according to errno: Error{Resource} if descriptors or memory ran out,
// otherwise Error{NotFound}.
[[noreturn]] void fail_to_open(const std::filesystem::path& path);

// Returns a descriptor for reading. Throws Error{CorruptFile} unless the path is a regular file:
// reading a device or a pipe might never end.
int open_regular_file(const std::filesystem::path& path);

// Returns a descriptor for reading a regular file, or a stream below /dev or /proc (/dev/stdin),
// but no device that may never end. Throws like read_text_file().
int open_text_stream(const std::filesystem::path& path);

// Renames a file to a name that is not in use, and syncs the folder. Throws Error{Io} if the name
// is in use; the file then keeps its old name.
void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

// The default limit on text files: a quarter of the machine's memory.
Index most_text_bytes();
// Returns the whole file. Throws Error{NotFound} if it cannot be opened, and Error{CorruptFile} if
// it is larger than max_bytes or is neither a regular file nor a stream below /dev or /proc.
std::string read_text_file(const std::filesystem::path& path, Index max_bytes = most_text_bytes());
// Writes through AtomicFile.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace hone
