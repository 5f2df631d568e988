// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/json_io.h"
#include "hone/model_io/architecture.h"

namespace hone::infer {

// What an open model is.
struct ModelInfo {
  model_io::Architecture architecture;
  std::string format;  // "huggingface", "hone", "gguf", "llama2.c"
  Index context = 0;   // tokens of one sequence: EngineOptions::context or the model's own
  Index file_bytes = 0;
  Index weight_bytes = 0;  // packed; what one decode step reads besides the cache
  Index kv_bytes_per_token = 0;
  std::string isa;     // the strongest instruction set in use
  std::string kernel;  // micro-kernel of the largest product, one token at a time
  int threads = 1;
  Json generation_defaults;  // of generation_config.json
};

}  // namespace hone::infer
