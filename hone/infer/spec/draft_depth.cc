// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/draft_depth.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

constexpr double kNewestTime = 0.2;   // weight of the newest time in a mean
constexpr double kUnknownRow = 0.05;  // what a row adds to a step of one row, if not measured
constexpr double kOlderDraft = 0.95;  // weight of a draft relative to the one after it
constexpr double kLeastGain = 1.05;   // of three rounds; less is within the noise of timing
constexpr double kHope = 0.9;         // acceptance for which drafts are tried again
constexpr Index kWeakRounds = 3;
constexpr Index kProbeDepth = 2;      // enough to see whether drafts are accepted again
constexpr double kProbeEvidence = 4;  // drafts that the estimate counts for when probing begins

double unmeasured(Index rows) { return 1 + kUnknownRow * static_cast<double>(rows - 1); }

}  // namespace

Index StepCosts::column_of(Index sequences) {
  return std::bit_width(static_cast<std::uint64_t>(std::max<Index>(sequences, 1)));
}

void StepCosts::observe(Index rows, Index sequences, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds) || rows < 1) return;
  const auto [entry, is_new] = columns_[column_of(sequences)].try_emplace(rows, seconds);
  if (!is_new) entry->second += kNewestTime * (seconds - entry->second);
}

double StepCosts::predict(const Column& column, Index rows) {
  const auto above = column.lower_bound(rows);
  if (above != column.end() && above->first == rows) return above->second;
  const auto beyond = [rows](const Column::value_type& nearest) {
    return nearest.second * unmeasured(rows) / unmeasured(nearest.first);
  };
  if (above == column.begin()) return beyond(*above);
  const auto below = std::prev(above);
  if (above == column.end()) return beyond(*below);
  const double share =
      static_cast<double>(rows - below->first) / static_cast<double>(above->first - below->first);
  return below->second + share * (above->second - below->second);
}

double StepCosts::ratio(Index rows, Index base_rows, Index sequences) const {
  HONE_CHECK(base_rows >= 1 && rows >= base_rows, "ratio", "1 <= base_rows <= rows",
             concat(base_rows, " and ", rows));
  const auto column = columns_.find(column_of(sequences));
  if (column == columns_.end()) return unmeasured(rows) / unmeasured(base_rows);
  return std::max(1.0, predict(column->second, rows) / predict(column->second, base_rows));
}

std::optional<double> StepCosts::seconds(Index rows, Index sequences) const {
  const auto column = columns_.find(column_of(sequences));
  if (column == columns_.end()) return std::nullopt;
  return predict(column->second, rows);
}

double expected_tokens(double acceptance, Index depth) {
  double tokens = 0, reached = 1;
  for (Index i = 0; i <= depth; ++i, reached *= acceptance) tokens += reached;
  return tokens;
}

double draft_gain(double acceptance, Index depth, const StepCosts& costs, const StepLoad& load) {
  const Index base = load.other_rows + 1;
  const double others = load.other_tokens;
  const double time = load.draft_cost * static_cast<double>(depth) +
                      costs.ratio(base + depth, base, load.other_sequences + 1);
  return (expected_tokens(acceptance, depth) + others) / ((1 + others) * time);
}

namespace {

struct BestDepth {
  Index depth = 0;
  double gain = 1;
};

BestDepth best_depth(double acceptance, Index most, const StepCosts& costs, const StepLoad& load) {
  BestDepth best;
  for (Index depth = 1; depth <= most; ++depth) {
    const double gain = draft_gain(acceptance, depth, costs, load);
    if (gain > best.gain) best = {.depth = depth, .gain = gain};
  }
  return best;
}

}  // namespace

DraftDepth::DraftDepth(double acceptance) : accepted_(2 * acceptance) {}

void DraftDepth::begin_probe() {
  is_off_ = false;
  is_probing_ = true;
  weak_rounds_ = 0;
  accepted_ *= kProbeEvidence / std::max(kProbeEvidence, examined_);
  examined_ = std::min(kProbeEvidence, examined_);
}

void DraftDepth::turn_off() {
  if (is_probing_) tokens_off_ = std::min(2 * tokens_off_, kMostTokensOff);
  is_off_ = true;
  is_probing_ = false;
  tokens_while_off_ = 0;
}

Index DraftDepth::choose(const StepCosts& costs, const StepLoad& load, bool may_probe) {
  if (is_off_) {
    const bool is_due = tokens_while_off_ >= tokens_off_ && may_probe;
    if (!is_due || best_depth(kHope, kMaxDraftDepth, costs, load).gain < kLeastGain) return 0;
    begin_probe();
  }
  const BestDepth best = best_depth(acceptance(), most_, costs, load);
  if (best.gain >= kLeastGain) {
    weak_rounds_ = 0;
    is_probing_ = false;
    return best.depth;
  }
  if (weak_rounds_++ < kWeakRounds) {
    return is_probing_ ? std::max(best.depth, kProbeDepth) : best.depth;
  }
  turn_off();
  return 0;
}

void DraftDepth::record(Index examined, Index accepted, Index emitted) {
  HONE_CHECK(examined >= 0 && accepted >= 0 && accepted <= examined && emitted >= 0, "record",
             "0 <= accepted <= examined", concat(accepted, " of ", examined));
  if (is_off_) tokens_while_off_ += emitted;
  most_ = std::min(most_ + 2 * examined, kMaxDraftDepth);
  const double weight = std::pow(kOlderDraft, static_cast<double>(examined));
  examined_ = examined_ * weight + static_cast<double>(examined);
  accepted_ = accepted_ * weight + static_cast<double>(accepted);
}

}  // namespace hone::infer
