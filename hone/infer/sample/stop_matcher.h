// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hone::infer {

// Looks for stop strings in bytes that arrive in pieces of any size. Bytes that may still become
// part of a stop string are held back; the string itself and everything after it never come out.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Bytes that are certain now. Empty forever once matched().
  std::string push(std::string_view bytes);
  // The text ended without a stop string: what was held back.
  std::string finish();
  bool matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace hone::infer
