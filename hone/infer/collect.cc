// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/collect.h"

#include <utility>

namespace hone::infer {

void Result::check() const {
  if (is_finished() && last().finished == FinishReason::Failed) {
    throw Error(last().error_category, last().error);
  }
}

bool CollectSink::try_push(Event&& event) noexcept {
  if (hook_ && !hook_(event)) return false;
  if (event.token) tokens.push_back(*event.token);
  text += event.text;
  events.push_back(std::move(event));
  return true;
}

}  // namespace hone::infer
