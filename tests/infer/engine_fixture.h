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

// Keeps everything a request reports. It may refuse events first.
class CollectSink final : public infer::CollectSink {
 public:
  CollectSink() : infer::CollectSink([this](const Event&) { return takes(); }) {}
  void refuse_next(int count) { refusals_ = count; }

 private:
  bool takes() {
    if (refusals_ == 0) return true;
    --refusals_;
    return false;
  }

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
