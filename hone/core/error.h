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

// The library's only exception type. what() is one line: "[where] expected …, got …", or "[where]"
// and a sentence.
class Error : public std::runtime_error {
 public:
  Error(ErrorCategory category, const std::string& message)
      : std::runtime_error(message), category_(category) {}
  ErrorCategory category() const noexcept { return category_; }

 private:
  ErrorCategory category_;
};

std::string_view name_of(ErrorCategory category);

// The exit status of a program that ends with this error.
int exit_status(ErrorCategory category);

}  // namespace hone
