// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hone/infer/engine.h"
#include "tests/support/test_data.h"

namespace hone::infer::test {

using namespace hone::test;

// Keeps everything a request reports.
class CollectSink final : public EventSink {
 public:
  bool try_push(Event&& event) noexcept override {
    if (refusals_ > 0) {
      --refusals_;
      return false;
    }
    if (event.token) tokens.push_back(*event.token);
    text += event.text;
    events.push_back(std::move(event));
    return true;
  }
  void refuse_next(int count) { refusals_ = count; }
  bool is_finished() const { return !events.empty() && events.back().finished.has_value(); }
  const Event& last() const { return events.back(); }

  std::vector<TokenId> tokens;
  std::string text;
  std::vector<Event> events;

 private:
  int refusals_ = 0;
};

// Submits and steps until the request has ended.
inline std::shared_ptr<CollectSink> run_request(Engine& engine, Request request) {
  auto sink = std::make_shared<CollectSink>();
  engine.submit(std::move(request), sink);
  while (!sink->is_finished()) engine.step();
  return sink;
}

// The tiny real model of HONE_TEST_DATA, f32 activations and cache unless changed.
inline std::unique_ptr<Engine> open_stories(const std::filesystem::path& model,
                                            EngineOptions options = {}) {
  if (options.executor == nullptr) options.executor = &serial_executor();
  options.tokenizer = model.parent_path() / "tok512.bin";
  return Engine::open_or_throw(model, options);
}

inline Request greedy(std::vector<TokenId> prompt, Index tokens) {
  Request request;
  request.tokens = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = tokens;
  request.ignore_eos = true;
  return request;
}

}  // namespace hone::infer::test
