// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "hone/core/machine/clock.h"
#include "hone/infer/kv/block_table.h"
#include "hone/infer/kv/kv_arena.h"
#include "hone/infer/model/model_runner.h"
#include "hone/infer/spec/draft_source.h"

namespace hone::infer {

struct ModelDraftsOptions {
  Index context = 0;   // maximum tokens of a text that gets drafts
  Index kv_bytes = 0;  // budget of the draft model's KV cache
  Index vocab = 0;     // of the target; may differ from the draft model's by padding
};

// Drafts from a smaller model, which runs the texts of all jobs together. It runs one step for the
// tokens that it has not computed yet and the first draft, and one step for each further draft. Its
// cache contains the text and the drafts of the last round, until the next round shows which of
// them were accepted.
// If the cache contains little of a text, the text is computed first, at most max_rows tokens a
// round, and gets no drafts meanwhile. A text that does not fit in the cache gets no drafts either.
class ModelDrafts final : public DraftSource {
 public:
  // `runner` and `clock` must outlive this.
  ModelDrafts(ModelRunner& runner, const ModelDraftsOptions& options, const Clock& clock);
  ~ModelDrafts() override;

  void propose(std::span<DraftJob> jobs) override;
  void forget(RequestId id) override;
  double seconds_per_draft() const override { return seconds_per_draft_; }
  Index rows() const override { return rows_; }
  // The number of tokens of the text in the cache.
  Index cached(RequestId id) const;

 private:
  struct Cached {
    BlockTable table;                   // blocks of tokens that are part of the text
    std::vector<TokenId> unverified{};  // drafts whose keys and values follow them
  };
  // A job in progress.
  struct Active {
    DraftJob* job = nullptr;
    Cached* cached = nullptr;
    Index rows = 0;                                 // rows of the next step
    std::vector<std::vector<std::byte*>> tables{};  // block tables, by group of layers
    Index pending() const { return std::ssize(job->sequence->tokens()) - cached->table.length(); }
  };

  Cached& verified(const DraftJob& job);
  bool reserve(Active& active, Index tokens, std::span<const DraftJob> jobs);
  void catch_up(std::vector<Active> active, std::span<const DraftJob> jobs);
  void draft(std::vector<Active> active, std::span<const DraftJob> jobs);
  void step(std::span<const Active> active, Index logits);
  void take_drafts(std::vector<Active>& active);
  std::span<float> padded(std::span<float> logits);

  ModelRunner& runner_;
  ModelDraftsOptions options_;
  const Clock& clock_;
  BlockPool pool_;
  KvArena arena_;
  std::map<RequestId, Cached> cached_;
  std::vector<float> padded_;
  double seconds_per_draft_ = 0;
  Index rows_ = 0;
};

}  // namespace hone::infer
