// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"

namespace hone::trainer {

AppendFile::AppendFile(std::filesystem::path path, std::string_view begin)
    : path_(std::move(path)), last_(begin.size()), end_(begin.size()) {
  write_text_file(path_, begin);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    fail(ErrorCategory::Io, path_.string(),
         concat("The file cannot be opened to append: ", std::strerror(errno)));
  }
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::write_at(std::size_t offset, std::string_view bytes) {
  const ssize_t written =
      ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  if (written != static_cast<ssize_t>(bytes.size())) {
    fail(ErrorCategory::Io, path_.string(),
         concat("Appending ", bytes.size(),
                " bytes failed: ", written < 0 ? std::strerror(errno) : "only a part was written"));
  }
  last_ = offset;
  end_ = offset + bytes.size();
}

void AppendFile::append(std::string_view bytes) { write_at(end_, bytes); }

void AppendFile::replace_last(std::string_view bytes) {
  HONE_CHECK(bytes.size() >= end_ - last_, path_.string(),
             concat("at least ", end_ - last_, " bytes"), bytes.size());
  write_at(last_, bytes);
}

void AppendFile::sync() {
  // Some file systems refuse to sync.
  if (::fsync(descriptor_) != 0 && errno != EINVAL) {
    fail(ErrorCategory::Io, path_.string(),
         concat("The file cannot be synced: ", std::strerror(errno)));
  }
  if (is_missing_) return;
  struct stat opened {
  }, named{};
  is_missing_ = ::fstat(descriptor_, &opened) == 0 &&
                (::stat(path_.c_str(), &named) != 0 || opened.st_ino != named.st_ino);
  if (is_missing_) log_warning(concat(path_.string(), " was removed during the run: it is lost"));
}

}  // namespace hone::trainer
