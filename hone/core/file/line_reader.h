// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "hone/core/index.h"

namespace hone {

// Reads the lines of a file, or of a pipe as they arrive.
class LineReader {
 public:
  enum class Next {
    Line,     // one was read
    TooLong,  // one was longer than the limit, and was skipped
    None,     // none has arrived yet
    End,
  };

  // Throws like read_text_file(). Lines longer than max_bytes are skipped, so memory use is at most
  // about max_bytes.
  LineReader(const std::filesystem::path& path, Index max_bytes);
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  // Reads the next line, without its "\n". The last line need not have one. Waits up to `wait_ms`
  // for a line to arrive, or until a signal. Throws Error{Io}.
  Next next(std::string& line, int wait_ms = 0);
  // Bytes of all lines so far, including "\n".
  Index bytes() const { return bytes_; }

 private:
  enum class Chunk { Read, None, End };
  Chunk read_chunk(int wait_ms);

  std::string path_;
  Index max_bytes_;
  int descriptor_ = -1;
  std::string pending_;  // bytes that were read but not yet returned, from begin_ on
  std::size_t begin_ = 0;
  std::size_t searched_ = 0;  // pending_ has no "\n" from begin_ up to here
  Index bytes_ = 0;
  bool is_skipping_ = false;  // within a line that is too long
};

}  // namespace hone
