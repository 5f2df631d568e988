// SPDX-License-Identifier: Apache-2.0
#include "hone/app/result_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

constexpr Index kBlockBytes = Index{1} << 16;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

}  // namespace

ResultFile::ResultFile(fs::path file, bool resume, const fs::path& input)
    : file_(std::move(file)), partial_(file_) {
  partial_ += ".partial";
  check_output_excludes(partial_, input);
  try {
    open(resume);
    lock();
    find_complete_lines();
  } catch (...) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
}

ResultFile::~ResultFile() {
  struct stat status {};
  const bool is_empty = ::fstat(descriptor_, &status) == 0 && status.st_size == 0;
  if (!is_finished_ && is_empty) ::unlink(partial_.c_str());
  ::close(descriptor_);
}

void ResultFile::open(bool resume) {
  HONE_REQUIRE(!is_there(file_), file_.string(),
               "This output exists and is not overwritten: remove it or choose another name.");
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (resume ? 0 : O_EXCL);
  descriptor_ = ::open(partial_.c_str(), flags, 0644);
  if (descriptor_ >= 0) return;
  if (errno != EEXIST) fail_io("create the file");
  descriptor_ = ::open(partial_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor_ >= 0) lock();  // refuses if that job still runs
  fail(ErrorCategory::InvalidArgument, partial_.string(),
       "A job that has not ended left its results here: continue it with --resume, or remove "
       "them.");
}

// The lock tells a job that runs from one that was killed. Whoever opened the file before its
// writer finished holds what now has the final name.
void ResultFile::lock() {
  struct stat own {};
  struct stat named {};
  const bool is_locked = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  if (!is_locked && errno != EWOULDBLOCK) fail_io("lock the file");
  const bool is_current = is_locked && ::fstat(descriptor_, &own) == 0 &&
                          ::stat(partial_.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
                          own.st_dev == named.st_dev;
  if (!is_current) {
    fail(ErrorCategory::Resource, partial_.string(), "Another process writes these results.");
  }
  if (!S_ISREG(own.st_mode)) fail_corrupt(partial_.string(), "a file", "something else");
}

void ResultFile::find_complete_lines() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_io("read the file");
  std::array<char, kBlockBytes> block;
  for (Index end = status.st_size; end > 0 && complete_ == 0;) {
    const Index begin = std::max<Index>(0, end - kBlockBytes);
    const auto size = static_cast<std::size_t>(end - begin);
    if (::pread(descriptor_, block.data(), size, begin) != static_cast<ssize_t>(size)) {
      fail_io("read the file");
    }
    const std::size_t newline = std::string_view(block.data(), size).rfind('\n');
    if (newline != std::string_view::npos) complete_ = begin + static_cast<Index>(newline) + 1;
    end = begin;
  }
  is_cut_ = complete_ == status.st_size;
  char first = '{';
  if (status.st_size > 0 && ::pread(descriptor_, &first, 1, 0) != 1) fail_io("read the file");
  if (first != '{') fail_corrupt(partial_.string(), "results of hone generate", "another file");
}

std::optional<std::string> ResultFile::next_done() {
  std::size_t searched = 0;
  for (;;) {
    const std::size_t end = pending_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    if (read_ == complete_) return std::nullopt;
    searched = pending_.size();
    const auto size = static_cast<std::size_t>(std::min(kBlockBytes, complete_ - read_));
    pending_.resize(searched + size);
    const ssize_t count = ::pread(descriptor_, pending_.data() + searched, size, read_);
    if (count <= 0) fail_io("read the file");
    pending_.resize(searched + static_cast<std::size_t>(count));
    read_ += count;
  }
}

void ResultFile::append(std::string_view line) {
  HONE_REQUIRE(read_ == complete_ && pending_.empty(), "results",
               "The lines of the earlier job have not been read.");
  if (!is_cut_ && ::ftruncate(descriptor_, complete_) != 0) fail_io("cut the file");
  is_cut_ = true;
  std::string bytes(line);
  bytes += '\n';
  write_all(bytes);
}

void ResultFile::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), complete_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int problem = errno;
      is_cut_ = false;
      errno = problem;
      fail_io(concat("write ", bytes.size(), " bytes"));
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
    complete_ += count;
    read_ = complete_;
  }
}

void ResultFile::finish() {
  if (!is_cut_ && ::ftruncate(descriptor_, complete_) != 0) fail_io("cut the file");
  if (::fsync(descriptor_) != 0) fail_io("sync the file");
  rename_to_new(partial_, file_);
  is_finished_ = true;
}

void ResultFile::fail_io(std::string_view action) const {
  const std::string problem = std::strerror(errno);
  fail(ErrorCategory::Io, partial_.string(), concat("Could not ", action, ": ", problem));
}

}  // namespace hone::app
