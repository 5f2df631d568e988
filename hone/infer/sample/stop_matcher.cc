// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sample/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace hone::infer {
namespace {

// The length of the longest suffix of `text` that is a prefix of `stop`.
std::size_t overlap(std::string_view text, std::string_view stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

std::string StopMatcher::push(std::string_view bytes) {
  if (matched_) return {};
  held_ += bytes;
  std::size_t first = std::string::npos, keep = 0;
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    keep = std::max(keep, overlap(held_, stops_[i]));
    const std::size_t at = held_.find(stops_[i]);
    if (at >= first) continue;
    first = at;
    matched_ = i;
  }
  if (matched_) {
    return std::exchange(held_, {}).substr(0, first);
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace hone::infer
