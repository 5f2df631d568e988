// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

namespace hone {

// While it lives, its process alone works in a folder: a lock on the file .lock in it, which goes
// with the process however that ends. Makes the folder where it is absent, and takes it away again
// when nothing has been written into it.
class FolderLock {
 public:
  // Error{Resource} when another process holds it; Error{Io} when the folder cannot be made;
  // Error{InvalidArgument} when it has no name.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  void make_folder(const std::filesystem::path& folder);
  // false: the file was removed between opening and locking it.
  bool try_lock(const std::filesystem::path& folder);

  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // innermost first
  int descriptor_ = -1;
};

}  // namespace hone
