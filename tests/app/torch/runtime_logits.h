// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "hone/infer/engine.h"

namespace hone::test {

// The logits [ids - 1, vocab] with which the runtime predicts all ids but the first from a model
// file, in exact f32.
inline at::Tensor runtime_logits(const std::filesystem::path& file,
                                 const std::vector<infer::TokenId>& ids) {
  infer::EngineOptions options;
  options.executor = &serial_executor();
  options.need_tokenizer = false;
  options.kv = infer::KvDtype::Float32;
  options.activations = infer::Activations::Float32;
  const auto engine = infer::Engine::open_or_throw(file, options);
  std::vector<float> all;
  engine->score(ids, {.on_logits = [&](Index, Index, std::span<const float> logits) {
                  all.insert(all.end(), logits.begin(), logits.end());
                }});
  const auto rows = static_cast<Index>(ids.size()) - 1;
  return at::tensor(all).view({rows, -1});
}

}  // namespace hone::test
