// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/folder_lock.h"

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

// Another process may remove the folder again, which needs another attempt. This many failures have
// another cause, such as a dangling link.
constexpr int kMaxAttempts = 1000;

[[noreturn]] void fail_io(const fs::path& path, std::string_view action, int problem) {
  fail(ErrorCategory::Io, path.string(),
       concat("Could not ", action, ": ", std::strerror(problem)));
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : file_(folder / kName) {
  HONE_REQUIRE(!folder.empty(), "folder", "The folder needs a name.");
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    make_folder(folder);
    if (try_lock(folder)) return;
  }
  fail_io(folder, "make the folder", ENOENT);
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
      fail_io(folder, "make the folder", errno);
    }
  }
}

bool FolderLock::try_lock(const fs::path& folder) {
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    if (errno == ENOENT) return false;  // the previous owner has removed the folder
    fail_io(file_, "create the file", errno);
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
    fail(ErrorCategory::Resource, folder.string(), "Another run of hone has locked this folder.");
  }
  fail_io(file_, "lock the file", problem);
}

FolderLock::~FolderLock() {
  ::unlink(file_.c_str());  // while still locked, so that another process that has it open sees it
                            // is gone
  ::close(descriptor_);
  for (const fs::path& folder : made_) {
    if (::rmdir(folder.c_str()) != 0) break;
  }
}

}  // namespace hone
