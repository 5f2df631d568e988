// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file_io.h"

namespace hone::trainer {

AppendFile::AppendFile(std::filesystem::path path, std::string_view begin)
    : path_(std::move(path)) {
  write_text_file(path_, begin);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) fail(ErrorCategory::Io, path_.string(), "to append", std::strerror(errno));
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::append(std::string_view bytes) {
  const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
  if (written != static_cast<ssize_t>(bytes.size())) {
    fail(ErrorCategory::Io, path_.string(), concat("to append ", bytes.size(), " bytes"),
         written < 0 ? std::strerror(errno) : "a short write");
  }
}

}  // namespace hone::trainer
