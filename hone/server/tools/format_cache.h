// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hone/infer/output_format.h"

namespace hone::server {

// Compiled formats by what they were made from, those used last. Thread-safe.
class FormatCache {
 public:
  struct Entry {
    std::string key;
    std::shared_ptr<const infer::grammar::JsonSchema> grammar{};
    std::vector<std::string> ignored{};  // JSON pointers of keywords that were left out
    std::size_t bytes = 0;
  };

  // Keeps formats of at most so many bytes together.
  explicit FormatCache(std::size_t capacity) : capacity_(capacity) {}

  // Throws what infer::compile_output() throws.
  Entry compile(const infer::OutputFormat& format);

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::size_t bytes_ = 0;
};

}  // namespace hone::server
