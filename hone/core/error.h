// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace hone {

enum class ErrorCategory {
  InvalidArgument,
  NotFound,
  CorruptFile,
  Unsupported,
  Io,
  Resource,
  Device,
  Cancelled,
  Internal,
};

// The one exception type of the library. what() is one sentence: where, what was wanted, what was
// found.
class Error : public std::runtime_error {
 public:
  Error(ErrorCategory category, const std::string& message)
      : std::runtime_error(message), category_(category) {}
  ErrorCategory category() const noexcept { return category_; }

 private:
  ErrorCategory category_;
};

std::string_view name_of(ErrorCategory category);

// Exit status of a program that ends with this error (product.md, "Commands").
int exit_status(ErrorCategory category);

}  // namespace hone
