// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hone/app/generate.h"
#include "hone/cli/command.h"

namespace hone::cli {

// The runtime's types, as selected by `--kv` and `--act`.
struct RuntimeChoice {
  std::string kv = "f16", act = "i8";

  infer::KvDtype kv_dtype() const;
  infer::Activations activations() const;
};
// `choice` must outlive parsing.
void add_runtime_options(CLI::App& verb, RuntimeChoice& choice);

// Adds `--ctx`, and with `kv_mb` (which must outlive parsing) `--kv-mb`.
void add_context_options(CLI::App& verb, infer::EngineOptions& engine, Index* kv_mb = nullptr);

// Adds `--draft`; `draft` must outlive parsing.
CLI::Option* add_draft_option(CLI::App& verb, std::string& draft);
// Where drafts come from: "ngram", a model, or nothing.
void set_draft(const std::string& draft, infer::EngineOptions& engine);

// What `--spec-k` says: the drafts of a round, or nothing for "auto". Throws Error{InvalidArgument}
// for anything but that and 1 to 16.
std::optional<Index> read_draft_depth(const std::string& option);

// Reads a file with a JSON array of token ids, or with an object that has one as "tokens", which
// `hone tokenize --json` prints. Throws Error{CorruptFile} for anything else.
std::vector<infer::TokenId> read_token_ids(const std::string& path);

}  // namespace hone::cli
