// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/work_limit.h"

#include <utility>

#include "hone/core/check.h"

namespace hone::text {
namespace {

thread_local WorkLimit* limit_of_thread = nullptr;

}  // namespace

WorkLimit::WorkLimit(std::size_t bytes)
    : left_(bytes), outer_(std::exchange(limit_of_thread, this)) {}

WorkLimit::~WorkLimit() { limit_of_thread = outer_; }

void WorkLimit::spend(std::size_t bytes) {
  if (limit_of_thread == nullptr) return;
  if (bytes > limit_of_thread->left_) {
    fail(ErrorCategory::Resource, "chat template", "The template makes too many values.");
  }
  limit_of_thread->left_ -= bytes;
}

void WorkLimit::spend_on_search(std::string_view text, std::string_view part) {
  constexpr std::size_t kComparedAtOnce = 16;
  spend(text.size() + text.size() / kComparedAtOnce * (part.size() / kComparedAtOnce));
}

}  // namespace hone::text
