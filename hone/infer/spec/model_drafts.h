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
  Index context = 0;   // most tokens of a text with drafts
  Index kv_bytes = 0;  // budget of the draft model's KV cache
  Index vocab = 0;     // of the target; may differ from the draft model's by padding
};

// Drafts from a smaller model, which runs the texts of all jobs together: one step for the tokens
// that it does not know yet and the first draft, and one for each further draft. Its cache holds
// the text and, until the next round shows which of them were accepted, the drafts of the last
// round. A text of which it knows little is computed first, at most max_rows tokens a round, and
// gets no drafts meanwhile. So does a text for which the cache has no room.
class ModelDrafts final : public DraftSource {
 public:
  // `runner` and `clock` must outlive this.
  ModelDrafts(ModelRunner& runner, const ModelDraftsOptions& options, const Clock& clock);
  ~ModelDrafts() override;

  void propose(std::span<DraftJob> jobs) override;
  void forget(RequestId id) override;
  double seconds_per_draft() const override { return seconds_per_draft_; }
  Index rows() const override { return rows_; }
  // The tokens of the text in the cache.
  Index cached(RequestId id) const;

 private:
  struct Cached {
    BlockTable table;                   // of tokens that are part of the text
    std::vector<TokenId> unverified{};  // drafts whose keys and values follow them
  };
  // A job in progress.
  struct Active {
    DraftJob* job = nullptr;
    Cached* cached = nullptr;
    Index rows = 0;                                 // of the next step
    std::vector<std::vector<std::byte*>> tables{};  // of blocks, by group of layers
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
