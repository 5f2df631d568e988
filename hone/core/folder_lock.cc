// SPDX-License-Identifier: Apache-2.0
#include "hone/core/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "hone/core/check.h"

namespace hone {

namespace fs = std::filesystem;

namespace {

// Another process that takes the folder away again makes us begin anew; more often than this only
// something else can, like a link to nowhere.
constexpr int kMostAttempts = 1000;

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : file_(folder / ".lock") {
  HONE_CHECK(!folder.empty(), "folder", "a name", "none");
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    make_folder(folder);
    if (try_lock(folder)) return;
  }
  fail(ErrorCategory::Io, folder.string(), "to make the folder", std::strerror(ENOENT));
}

void FolderLock::make_folder(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> absent;
  for (fs::path part = folder; !part.empty() && !fs::exists(part, ignored);
       part = part.parent_path()) {
    absent.push_back(part);
  }
  for (; !absent.empty(); absent.pop_back()) {
    if (::mkdir(absent.back().c_str(), 0755) == 0) {
      made_.insert(made_.begin(), absent.back());
    } else if (errno != EEXIST && errno != ENOENT) {
      fail(ErrorCategory::Io, folder.string(), "to make the folder", std::strerror(errno));
    }
  }
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
  ::unlink(file_.c_str());  // while locked: who has opened it meanwhile then finds that it is gone
  ::close(descriptor_);
  for (const fs::path& folder : made_) {
    if (::rmdir(folder.c_str()) != 0) break;
  }
}

}  // namespace hone
