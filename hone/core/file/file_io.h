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

// Writes a file under a temporary name next to it; commit() syncs it and renames it into place, so
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
  // What is written from now on is added to `hash`, too, which must outlive the writing.
  void hash_into(Sha256& hash) { hash_ = &hash; }
  void commit();

 private:
  void flush();
  void write_out(std::string_view text);

  std::filesystem::path name_;  // as it was given, for messages
  std::filesystem::path path_, temporary_;
  std::string pending_;
  Sha256* hash_ = nullptr;
  Index written_ = 0;
  int descriptor_ = -1;
};

// The same for a folder of files: everything is written below staging(); commit() syncs all of it
// and renames it to `path`. An existing folder is replaced once the new one is complete; `path` may
// be neither a file nor a folder in which the program runs.
class AtomicFolder {
 public:
  // Throws for a folder that must not be replaced. Its argument may have a temporary name.
  using Check = std::function<void(const std::filesystem::path& folder)>;

  // `check` is called for an existing folder now, and again in commit() for what is there by then,
  // which stays if it throws.
  explicit AtomicFolder(const std::filesystem::path& path, Check check = {});
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  const std::filesystem::path& staging() const { return staging_; }
  void commit();

 private:
  void check(const std::filesystem::path& folder) const;
  void replace();

  std::filesystem::path name_;  // as it was given, for messages
  std::filesystem::path path_, staging_;
  Check check_;
  int descriptor_ = -1;  // of staging_, locked
  bool committed_ = false;
};

// The file or folder that writing `path` creates or replaces: absolute, without a slash at its end,
// with links followed and ".." resolved, also where folders on the way do not exist yet. Whoever
// checks an output checks this. Throws Error{Io} for links that lead in a circle.
std::filesystem::path output_target(const std::filesystem::path& path);

// Throws Error{InvalidArgument} if replacing the folder `out` would remove the one in which the
// program runs.
void check_output_spares_current(const std::filesystem::path& out);

// Throws Error{InvalidArgument} if replacing `out` would change or remove `input`: if both are
// there and `input` is `out` or lies within it. Symbolic links to them are followed.
void check_output_excludes(const std::filesystem::path& out, const std::filesystem::path& input);
// The same, and if `out` is there and lies within the folder `input`, or is what a link in it leads
// to.
void check_output_spares(const std::filesystem::path& out, const std::filesystem::path& input);

// Throws Error{InvalidArgument} if `out`, which need not exist, is the folder `input` or lies
// within it: what is written there would be read as input the next time. Symbolic links are
// followed.
void check_output_outside(const std::filesystem::path& out, const std::filesystem::path& input);

// Removes temporaries that killed runs left in `folder`: only hone's own names, and only if their
// process is gone, also from a container or machine that shares the folder.
void remove_stale_temporaries(const std::filesystem::path& folder);

// Reports a failed open(2) according to errno: Error{Resource} if descriptors or memory ran out,
// otherwise Error{NotFound}.
[[noreturn]] void fail_to_open(const std::filesystem::path& path);

// A descriptor for reading. Throws Error{CorruptFile} unless the path is a regular file: reading a
// device or a pipe might never end.
int open_regular_file(const std::filesystem::path& path);

// A descriptor for reading a regular file, or a stream below /dev or /proc (/dev/stdin), but no
// device that may never end. Errors as read_text_file().
int open_text_stream(const std::filesystem::path& path);

// Renames a file to a name that is not in use, and syncs the folder. Throws Error{Io} if the name
// is in use; the file then keeps its old name.
void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

// The default limit on text files: a quarter of the machine's memory.
Index most_text_bytes();
// The whole file. Error{NotFound} if it cannot be opened, Error{CorruptFile} if it is larger than
// max_bytes or is neither a regular file nor a stream below /dev or /proc.
std::string read_text_file(const std::filesystem::path& path, Index max_bytes = most_text_bytes());
// Writes through AtomicFile.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace hone
