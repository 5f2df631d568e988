// SPDX-License-Identifier: Apache-2.0
#include "hone/core/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hone/core/check.h"

namespace hone {

namespace fs = std::filesystem;

FolderLock::FolderLock(const fs::path& folder) : file_(folder / ".lock") {
  do {
    make_folder(folder);
  } while (!try_lock(folder));
}

void FolderLock::make_folder(const fs::path& folder) {
  std::error_code error;
  for (fs::path part = folder; !part.empty() && !fs::exists(part, error);
       part = part.parent_path()) {
    made_.push_back(part);
  }
  fs::create_directories(folder, error);
  if (error) fail(ErrorCategory::Io, folder.string(), "to make the folder", error.message());
}

bool FolderLock::try_lock(const fs::path& folder) {
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    if (errno == ENOENT) return false;  // the one who held it has removed the folder
    fail(ErrorCategory::Io, file_.string(), "to create the file", std::strerror(errno));
  }
  struct stat opened {
  }, named{};
  const bool locked = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  const int problem = errno;
  const bool same = ::fstat(descriptor_, &opened) == 0 && ::stat(file_.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino;
  if (locked && same) return true;
  ::close(descriptor_);
  if (locked) return false;
  if (problem == EWOULDBLOCK) {
    fail(ErrorCategory::Resource, folder.string(), "a folder that no other process works in",
         "one that another run of hone has locked");
  }
  fail(ErrorCategory::Io, file_.string(), "to lock the file", std::strerror(problem));
}

FolderLock::~FolderLock() {
  ::unlink(
      file_.c_str());  // still locked: who has opened it meanwhile finds another under its name
  ::close(descriptor_);
  for (const fs::path& folder : made_) {
    if (::rmdir(folder.c_str()) != 0) break;
  }
}

}  // namespace hone
