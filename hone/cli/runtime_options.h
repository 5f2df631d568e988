// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/app/generate.h"
#include "hone/cli/command.h"

namespace hone::cli {

// How the runtime computes, as `--kv` and `--act` choose.
struct RuntimeChoice {
  std::string kv = "f16", act = "i8";

  infer::KvDtype kv_dtype() const;
  infer::Activations activations() const;
};
// `choice` outlives the parsing.
void add_runtime_options(CLI::App& verb, RuntimeChoice& choice);

// A file with a JSON array of token ids. Error{CorruptFile} when it holds anything else.
std::vector<infer::TokenId> read_token_ids(const std::string& path);

}  // namespace hone::cli
