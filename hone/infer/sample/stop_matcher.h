// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone::infer {

// Finds stop strings in bytes that arrive in pieces of any size. Holds back bytes that may become
// part of a stop string, and never returns the stop string or anything after it.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns the bytes that are now known to precede a stop string. Always empty once matched().
  std::string push(std::string_view bytes);
  // Returns the bytes held back, after the text ended without a stop string.
  std::string finish();
  bool matched() const { return matched_.has_value(); }
  // The index of the stop string that was found.
  std::size_t matched_string() const { return *matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::size_t> matched_;
};

}  // namespace hone::infer
