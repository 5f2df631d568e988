// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/text/tokenizer.h"

namespace hone::infer {

// Speculative decoding (docs/speculation.md): tokens are guessed by something cheap, and one step
// of the model verifies all of them. The text, or its law, is that without guesses.

inline constexpr Index kMaxDraftDepth = 16;  // drafts of one round

// How drafts of a draft model are verified. Drafts that are certain (n-grams, temperature 0) leave
// the text of every seed as it is under both rules.
enum class SpecRule {
  Coupled,  // model and draft model draw by the same noise: the text is that without drafts
  Exact,    // the text has the same law, but is another one; accepts more drafts
};
std::string_view name_of(SpecRule rule);  // "coupled", "exact"

// Settings of a request, for engines with a source of drafts.
struct SpecParams {
  // The drafts of a round, 0 … kMaxDraftDepth. Without a value, as many as pay by the times
  // measured so far: none where drafts fail or where rows of other requests fill the step.
  std::optional<Index> depth{};
  SpecRule rule = SpecRule::Coupled;
};

// Proposes up to `count` tokens that could follow the text. Called on the engine thread.
using DraftFunction =
    std::function<std::vector<text::TokenId>(std::span<const text::TokenId> text, Index count)>;

// Where the drafts of an engine come from: nowhere, or one of these sources.
struct DraftOptions {
  bool ngram = false;             // what followed the last 4, 3 or 2 tokens earlier in the text
  std::filesystem::path model{};  // a model with the same vocabulary
  DraftFunction function{};
  // Budget of the KV cache of the draft model; 0: all texts that run together in full, but at most
  // a quarter of the memory that is free.
  Index kv_bytes = 0;
};

// Counts of rounds that had drafts. A draft after the first rejection is drafted but not examined.
struct SpecStats {
  Index rounds = 0, drafted = 0, examined = 0, accepted = 0, emitted = 0;
  std::array<Index, kMaxDraftDepth> examined_at{}, accepted_at{};  // by place in the round

  // Adds a round that emitted so many tokens. Error{InvalidArgument} unless
  // accepted <= examined <= drafted <= kMaxDraftDepth.
  void record(Index drafted_in_round, Index examined_in_round, Index accepted_in_round,
              Index emitted_in_round);
  double mean_depth() const {
    return rounds > 0 ? static_cast<double>(drafted) / static_cast<double>(rounds) : 0;
  }
};

}  // namespace hone::infer
