// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

namespace hone {

// Locks the file .lock in a folder, so that this process has exclusive use of the folder while the
// object lives. The system releases the lock however the process ends. Creates the folder if it
// does not exist, and removes it again if nothing was written into it.
class FolderLock {
 public:
  static constexpr const char* kName = ".lock";

  // Throws Error{Resource} if another process has the lock, Error{Io} if the folder cannot be
  // created, and Error{InvalidArgument} if it has no name.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  void make_folder(const std::filesystem::path& folder);
  // Returns false if the file was removed between opening and locking it.
  bool try_lock(const std::filesystem::path& folder);

  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // innermost first
  int descriptor_ = -1;
};

}  // namespace hone
