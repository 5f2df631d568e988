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

// Speculative decoding (docs/speculation.md): a cheap source drafts tokens, and one step of the
// model verifies all of them. The text, or its distribution, is the same as without drafts.

inline constexpr Index kMaxDraftDepth = 16;  // maximum drafts of one round

// How drafts of a draft model are verified. Drafts that are certain (n-grams, temperature 0) do not
// change the text of any seed under either rule.
enum class SpecRule {
  Coupled,  // model and draft model share the noise: the text is the same as without drafts
  Exact,    // a different text with the same distribution; accepts more drafts
};
std::string_view name_of(SpecRule rule);  // "coupled", "exact"

// Settings of a request, for engines with a source of drafts.
struct SpecParams {
  // The drafts of a round, 0 … kMaxDraftDepth. If not set, as many as pay off by the times measured
  // so far: none if drafts fail, or if rows of other requests fill the step.
  std::optional<Index> depth{};
  SpecRule rule = SpecRule::Coupled;
};

// Proposes up to `count` tokens that could follow the text. Called on the engine thread.
using DraftFunction =
    std::function<std::vector<text::TokenId>(std::span<const text::TokenId> text, Index count)>;

// Where the drafts of an engine come from: nowhere, or one of these sources.
struct DraftOptions {
  bool ngram = false;             // tokens that followed the last 4, 3 or 2 tokens earlier
  std::filesystem::path model{};  // a model with the same vocabulary
  DraftFunction function{};
  // Budget of the draft model's KV cache. 0 means enough for all texts that run together, but at
  // most a quarter of the free memory.
  Index kv_bytes = 0;
};

// Counts of rounds that had drafts. A draft after the first rejection is drafted but not examined.
struct SpecStats {
  Index rounds = 0, drafted = 0, examined = 0, accepted = 0, emitted = 0;
  std::array<Index, kMaxDraftDepth> examined_at{}, accepted_at{};  // by position in the round

  // Adds a round. Throws Error{InvalidArgument} unless accepted <= examined <= drafted <=
  // kMaxDraftDepth.
  void record(Index drafted_in_round, Index examined_in_round, Index accepted_in_round,
              Index emitted_in_round);
  double mean_depth() const {
    return rounds > 0 ? static_cast<double>(drafted) / static_cast<double>(rounds) : 0;
  }
};

}  // namespace hone::infer
