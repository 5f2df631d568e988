// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/json_io.h"
#include "hone/model_io/architecture.h"

namespace hone::infer {

// Describes an open model.
struct ModelInfo {
  model_io::Architecture architecture;
  std::string format;  // "huggingface", "hone", "gguf", "llama2.c"
  Index context = 0;   // maximum tokens of a sequence: EngineOptions::context or the model's own
  Index file_bytes = 0;
  Index weight_bytes = 0;  // packed; read by each decode step besides the cache
  Index kv_bytes_per_token = 0;
  std::string isa;     // the strongest instruction set in use
  std::string kernel;  // micro-kernel of the largest product for one token
  int threads = 1;
  Json generation_defaults;  // from generation_config.json
};

}  // namespace hone::infer
