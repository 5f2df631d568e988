// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>

namespace hone::test {

// A stop that is requested by assignment.
class StopFlag {
 public:
  explicit StopFlag(bool requested = false) { *this = requested; }
  StopFlag& operator=(bool requested) {
    if (requested) source_.request_stop();
    return *this;
  }
  operator std::stop_token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
};

}  // namespace hone::test
