// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/model_drafts.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

namespace hone::infer {
namespace {

// A text with more tokens that the draft model does not know gets no drafts in this round: two are
// usual, as the last draft of a round is never computed.
constexpr Index kMostPending = kMaxDraftDepth + 1;
constexpr Index kLogitRows = 32;  // at a time
constexpr double kNewestDraft = 0.2;
// No probability, and far from overflow in the sampling chain.
constexpr float kNoToken = -1e30f;

// Takes back the drafts that sequences have drawn, however drafting ends.
class DropDrafts {
 public:
  explicit DropDrafts(std::span<const DraftJob> jobs) : jobs_(jobs) {}
  ~DropDrafts() {
    for (const DraftJob& job : jobs_) job.sequence->drop_drafts();
  }
  DropDrafts(const DropDrafts&) = delete;
  DropDrafts& operator=(const DropDrafts&) = delete;

 private:
  std::span<const DraftJob> jobs_;
};

}  // namespace

ModelDrafts::ModelDrafts(ModelRunner& runner, const ModelDraftsOptions& options, const Clock& clock)
    : runner_(runner),
      options_(options),
      clock_(clock),
      pool_(kv_block_sizes(runner.kv_groups()), options.kv_bytes),
      arena_(pool_) {}

ModelDrafts::~ModelDrafts() {
  for (auto& [id, cached] : cached_) cached.table.release(pool_);
}

void ModelDrafts::forget(RequestId id) {
  const auto found = cached_.find(id);
  if (found == cached_.end()) return;
  found->second.table.release(pool_);
  cached_.erase(found);
  // No worker reads blocks between the steps.
  const bool is_too_large = arena_.resident_bytes() > pool_.budget_bytes();
  if (cached_.empty() || is_too_large) arena_.reclaim(pool_);
}

Index ModelDrafts::cached(RequestId id) const {
  const auto found = cached_.find(id);
  return found == cached_.end() ? 0 : found->second.table.length();
}

// Keeps the drafts of the last round that became text, except the last token: its logits are
// wanted.
ModelDrafts::Cached& ModelDrafts::verified(const DraftJob& job) {
  Cached& cached =
      cached_.try_emplace(job.id, Cached{BlockTable(runner_.kv_groups())}).first->second;
  const auto text = job.sequence->tokens();
  const auto after = text.subspan(static_cast<std::size_t>(cached.table.length()));
  const auto same = std::ranges::mismatch(cached.unverified, after.first(after.size() - 1)).in1;
  cached.table.commit(pool_, same - cached.unverified.begin());
  cached.table.trim(pool_);  // blocks behind the windows
  cached.unverified.clear();
  return cached;
}

void ModelDrafts::propose(std::span<DraftJob> jobs) {
  HONE_TRACE_ZONE("draft", {"sequences", jobs.size()});
  const DropDrafts guard(jobs);
  std::vector<Active> unknown, known;
  Index rows = 0;
  for (DraftJob& job : jobs) {
    Active active{.job = &job, .cached = &verified(job)};
    const auto text = job.sequence->tokens();
    const auto length = static_cast<Index>(text.size());
    job.count = std::min(job.count, options_.context - length + 1);
    const auto is_foreign = [this](TokenId id) { return id >= runner_.vocab_size(); };
    const auto after = text.subspan(static_cast<std::size_t>(active.cached->table.length()));
    if (job.count < 1 || std::ranges::any_of(after, is_foreign)) continue;
    active.rows = active.pending();
    const bool is_known = active.rows <= kMostPending && rows + active.rows <= runner_.max_rows();
    if (is_known) rows += active.rows;
    (is_known ? known : unknown).push_back(std::move(active));
  }
  try {
    catch_up(std::move(unknown), jobs);
    draft(std::move(known), jobs);
  } catch (...) {  // the model failed, and with it whoever takes part
    for (DraftJob& job : jobs) job.failure = std::current_exception();
  }
}

// Reserves the next positions. Texts that are not part of the round lose their blocks if there are
// too few.
bool ModelDrafts::reserve(Active& active, Index tokens, std::span<const DraftJob> jobs) {
  std::vector<BlockCopy> copies;  // stays empty: nobody shares blocks
  const auto takes_part = [jobs](RequestId id) {
    return std::ranges::any_of(jobs, [id](const DraftJob& job) { return job.id == id; });
  };
  for (auto at = cached_.begin(); !active.cached->table.reserve(pool_, tokens, copies); ++at) {
    while (at != cached_.end() && takes_part(at->first)) ++at;
    if (at == cached_.end()) return false;
    at->second.table.release(pool_);
    at->second.unverified.clear();
  }
  active.tables.assign(static_cast<std::size_t>(pool_.groups()), {});
  for (Index group = 0; group < pool_.groups(); ++group) {
    std::vector<std::byte*>& table = active.tables[static_cast<std::size_t>(group)];
    for (const BlockId id : active.cached->table.blocks(group)) {
      table.push_back(id == kNoBlock ? nullptr : arena_.block(group, id));
    }
  }
  return true;
}

// Computes texts up to the token before the last one.
void ModelDrafts::catch_up(std::vector<Active> active, std::span<const DraftJob> jobs) {
  Index left = runner_.max_rows();
  std::erase_if(active, [&](Active& one) {
    one.rows = std::min(one.pending() - 1, left);
    if (one.rows < 1 || !reserve(one, one.rows, jobs)) return true;
    left -= one.rows;
    return false;
  });
  if (active.empty()) return;
  step(active, 0);
  for (const Active& one : active) {
    one.cached->table.commit(pool_, one.rows);
    one.cached->table.trim(pool_);
  }
}

void ModelDrafts::draft(std::vector<Active> active, std::span<const DraftJob> jobs) {
  std::erase_if(
      active, [&](Active& one) { return !reserve(one, one.pending() + one.job->count - 1, jobs); });
  if (active.empty()) return;
  const std::int64_t begin = clock_.now_ns();
  while (!active.empty()) {
    step(active, 1);
    take_drafts(active);
    for (Active& one : active) one.rows = 1;
  }
  Index drafts = 0;
  for (const DraftJob& job : jobs) drafts += std::ssize(job.drafts);
  if (drafts == 0) return;
  const double seconds = seconds_between(begin, clock_.now_ns()) / static_cast<double>(drafts);
  const double weight = seconds_per_draft_ > 0 ? kNewestDraft : 1;
  seconds_per_draft_ += weight * (seconds - seconds_per_draft_);
}

// Runs the next rows of each text, which follow what its cache holds; of the last one logits are
// wanted if `logits` is 1.
void ModelDrafts::step(std::span<const Active> active, Index logits) {
  StepBatch batch;
  for (const Active& one : active) {
    Cached& cached = *one.cached;
    const auto text = one.job->sequence->tokens();
    const Index first = cached.table.length() + std::ssize(cached.unverified);
    for (Index i = 0; i < one.rows; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      const bool is_text = at < text.size();
      batch.tokens.push_back(is_text ? text[at] : one.job->drafts[at - text.size()]);
    }
    batch.sequences.push_back({.rows = one.rows,
                               .first_position = first,
                               .tables = {one.tables.begin(), one.tables.end()},
                               .logits = logits});
    if (logits == 0) continue;
    cached.unverified.insert(cached.unverified.end(), batch.tokens.end() - one.rows,
                             batch.tokens.end());
  }
  rows_ += batch.rows();
  runner_.forward(batch);
}

// Draws a draft for each text, and drops those that need no more.
void ModelDrafts::take_drafts(std::vector<Active>& active) {
  const auto vocab = static_cast<std::size_t>(options_.vocab);
  const auto draws_last = [&](const Active& one, std::span<float> logits) {
    DraftJob& job = *one.job;
    const std::size_t before = job.distributions.size();
    std::span<double> distribution;
    if (job.wants_distributions) {
      job.distributions.resize(before + vocab);
      distribution = std::span(job.distributions).subspan(before);
    }
    try {
      if (const auto id = job.sequence->draft(logits, distribution)) {
        job.drafts.push_back(*id);
        return std::ssize(job.drafts) >= job.count;
      }
    } catch (...) {  // ends this request alone
      job.failure = std::current_exception();
    }
    job.distributions.resize(before);
    return true;
  };
  std::vector<Active> left;
  for (std::size_t first = 0; first < active.size(); first += kLogitRows) {
    const std::size_t count = std::min<std::size_t>(kLogitRows, active.size() - first);
    const std::span<float> logits =
        runner_.logits(static_cast<Index>(first), static_cast<Index>(count));
    const std::size_t width = logits.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      Active& one = active[first + i];
      if (!draws_last(one, padded(logits.subspan(i * width, width)))) {
        left.push_back(std::move(one));
      }
    }
  }
  active = std::move(left);
}

// The logits of the target's tokens.
std::span<float> ModelDrafts::padded(std::span<float> logits) {
  const auto vocab = static_cast<std::size_t>(options_.vocab);
  if (logits.size() >= vocab) return logits.first(vocab);
  padded_.assign(vocab, kNoToken);
  std::ranges::copy(logits, padded_.begin());
  return padded_;
}

}  // namespace hone::infer
