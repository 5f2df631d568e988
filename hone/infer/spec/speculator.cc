// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/speculator.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hone::infer {
namespace {

constexpr double kOlderOutcome = 0.98;  // weight of a draft relative to the one after it
constexpr double kEvidence = 2;         // drafts as which the first guess of the acceptance counts
// A new request may differ from those before it, so it begins with at least this acceptance.
constexpr double kLeastFirst = 0.25;

}  // namespace

Speculator::Speculator(std::unique_ptr<DraftSource> source, Index vocab)
    : source_(std::move(source)),
      vocab_(vocab),
      examined_(kEvidence),
      accepted_(kEvidence * DraftDepth::kFirstAcceptance) {}

Speculator::Drafting& Speculator::drafting(RequestId id) {
  const double first = std::clamp(accepted_ / examined_, kLeastFirst, DraftDepth::kFirstAcceptance);
  return requests_.try_emplace(id, Drafting{DraftDepth(first)}).first->second;
}

// One request at a time probes, so that probes cost little in a batch.
Index Speculator::choose_depth(const Candidate& candidate, const StepLoad& load, bool& is_probing) {
  const SpecParams& params = candidate.sequence->request().spec;
  if (params.depth) return *params.depth;
  DraftDepth& depth = drafting(candidate.id).depth;
  const bool was_probing = depth.is_probing();
  const Index chosen = depth.choose(costs_, load, !is_probing || was_probing);
  is_probing |= depth.is_probing();
  return chosen;
}

std::span<const DraftJob> Speculator::propose(std::span<const Candidate> candidates) {
  jobs_.clear();
  const auto others = static_cast<Index>(candidates.size()) - 1;
  bool is_probing = std::ranges::any_of(
      candidates, [this](const Candidate& one) { return drafting(one.id).depth.is_probing(); });
  StepLoad load{
      .other_rows = others, .other_sequences = others, .other_tokens = static_cast<double>(others)};
  if (const auto step = costs_.seconds(others + 1, others + 1)) {
    load.draft_cost = source_->seconds_per_draft() / *step;
  }
  for (const Candidate& one : candidates) {
    const Index depth = std::min(choose_depth(one, load, is_probing), one.most);
    if (depth <= 0) continue;
    load.other_rows += depth;
    load.other_tokens += expected_tokens(drafting(one.id).depth.acceptance(), depth) - 1;
    const SamplingParams& sampling = one.sequence->request().sampling;
    const bool is_exact = one.sequence->request().spec.rule == SpecRule::Exact;
    jobs_.push_back({.id = one.id,
                     .sequence = one.sequence,
                     .count = depth,
                     .wants_distributions = is_exact && sampling.temperature > 0});
  }
  if (!jobs_.empty()) source_->propose(jobs_);
  return jobs_;
}

std::span<const double> Speculator::distribution(RequestId id, Index i) const {
  const auto job = std::ranges::find(jobs_, id, &DraftJob::id);
  if (job == jobs_.end() || job->distributions.empty()) return {};
  const auto vocab = static_cast<std::size_t>(vocab_);
  return std::span(job->distributions).subspan(static_cast<std::size_t>(i) * vocab, vocab);
}

void Speculator::record(RequestId id, Index drafted, const VerifiedRun& run) {
  Drafting& request = drafting(id);
  const auto emitted = std::ssize(run.tokens);
  request.depth.record(run.examined, run.accepted, emitted);
  if (drafted == 0) return;
  request.stats.record(drafted, run.examined, run.accepted, emitted);
  totals_.record(drafted, run.examined, run.accepted, emitted);
  const double weight = std::pow(kOlderOutcome, static_cast<double>(run.examined));
  examined_ = examined_ * weight + static_cast<double>(run.examined);
  accepted_ = accepted_ * weight + static_cast<double>(run.accepted);
}

SpecStats Speculator::forget(RequestId id) {
  source_->forget(id);
  const auto request = requests_.extract(id);
  return request.empty() ? SpecStats{} : request.mapped().stats;
}

}  // namespace hone::infer
