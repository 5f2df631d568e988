// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace hone::text {

// Bounds what a template makes on this thread while the object exists, so that none takes memory or
// time without end. Without one, nothing is bounded.
class WorkLimit {
 public:
  explicit WorkLimit(std::size_t bytes);
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;
  ~WorkLimit();

  // Counts bytes that are made or looked at. Throws Error{Resource} beyond the limit.
  static void spend(std::size_t bytes);
  // Counts a search, which in the worst case compares all of `part` at each byte.
  static void spend_on_search(std::string_view text, std::string_view part);

 private:
  std::size_t left_;
  WorkLimit* outer_;
};

}  // namespace hone::text
