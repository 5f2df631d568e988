// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hone/infer/request.h"

namespace hone::infer {

// The events of a request, and what they add up to.
struct Result {
  std::vector<TokenId> tokens{};
  std::string text{};
  std::vector<Event> events{};

  bool is_finished() const { return !events.empty() && events.back().finished.has_value(); }
  // Whether a token was generated, or the request ended without one.
  bool has_begun() const { return !tokens.empty() || is_finished(); }
  // The events are not empty.
  const Event& last() const { return events.back(); }
  FinishReason finish_reason() const { return *last().finished; }
  // Throws the error of a request that failed.
  void check() const;
};

// Collects the events of one request. Read the result on the engine thread, between steps.
class CollectSink : public EventSink, public Result {
 public:
  // Called with each event before it is kept. Returns false to refuse it for now, as a full sink
  // does.
  using Hook = std::function<bool(const Event&)>;

  explicit CollectSink(Hook hook = {}) : hook_(std::move(hook)) {}
  bool try_push(Event&& event) noexcept override;

 private:
  Hook hook_;
};

}  // namespace hone::infer
