// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"

namespace hone {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 18;

}  // namespace

LineReader::LineReader(const std::filesystem::path& path, Index max_bytes)
    : path_(path.string()), max_bytes_(max_bytes), descriptor_(open_text_stream(path)) {}

LineReader::~LineReader() { ::close(descriptor_); }

// Appends to pending_ what is there.
LineReader::Chunk LineReader::read_chunk(int wait_ms) {
  pollfd input{descriptor_, POLLIN, 0};
  const int ready = ::poll(&input, 1, wait_ms);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return Chunk::None;
  pending_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  const std::size_t size = pending_.size();
  pending_.resize(size + kChunkBytes);
  const ssize_t count = ::read(descriptor_, pending_.data() + size, kChunkBytes);
  pending_.resize(size + static_cast<std::size_t>(count < 0 ? 0 : count));
  if (count > 0) return Chunk::Read;
  if (count == 0) return Chunk::End;
  if (errno == EINTR || errno == EAGAIN) return Chunk::None;
  if (errno == EISDIR) fail_corrupt(path_, "a file", "a folder");
  fail(ErrorCategory::Io, path_, concat("Could not read the file: ", std::strerror(errno)));
}

LineReader::Next LineReader::next(std::string& line, int wait_ms) {
  for (;;) {
    const std::size_t end = pending_.find('\n', searched_);
    const std::size_t length = (end == std::string::npos ? pending_.size() : end) - begin_;
    is_skipping_ |= static_cast<Index>(length) > max_bytes_;
    if (end == std::string::npos) {
      if (is_skipping_) {  // its bytes count, and are not kept
        bytes_ += static_cast<Index>(length);
        begin_ = pending_.size();
      }
      searched_ = pending_.size();
      const Chunk chunk = read_chunk(wait_ms);
      if (chunk == Chunk::None) return Next::None;
      if (chunk == Chunk::Read) continue;
      if (!is_skipping_ && pending_.size() == begin_) return Next::End;
    }
    const std::size_t rest = pending_.size() - begin_;
    const std::size_t taken = std::min(length + 1, rest);
    const bool is_long = is_skipping_;
    is_skipping_ = false;
    if (!is_long) line.assign(pending_, begin_, std::min(length, rest));
    bytes_ += static_cast<Index>(taken);
    begin_ += taken;
    searched_ = begin_;
    return is_long ? Next::TooLong : Next::Line;
  }
}

}  // namespace hone
