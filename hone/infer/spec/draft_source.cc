// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/draft_source.h"

#include <algorithm>
#include <map>
#include <utility>

#include "hone/infer/spec/ngram_index.h"

namespace hone::infer {
namespace {

class NgramDrafts final : public DraftSource {
 public:
  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      NgramIndex& index = indices_[job.id];
      const std::span<const TokenId> text = job.sequence->tokens();
      index.append(text.subspan(static_cast<std::size_t>(index.size())));
      job.drafts = index.propose(job.count);
    }
  }
  void forget(RequestId id) override { indices_.erase(id); }

 private:
  std::map<RequestId, NgramIndex> indices_;
};

class FunctionDrafts final : public DraftSource {
 public:
  FunctionDrafts(DraftFunction function, Index vocab)
      : function_(std::move(function)), vocab_(vocab) {}
  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      try {
        job.drafts = function_(job.sequence->tokens(), job.count);
      } catch (...) {
        job.failure = std::current_exception();
      }
      const auto is_no_token = [this](TokenId id) { return id < 0 || id >= vocab_; };
      job.drafts.erase(std::ranges::find_if(job.drafts, is_no_token), job.drafts.end());
      if (std::ssize(job.drafts) > job.count) {
        job.drafts.resize(static_cast<std::size_t>(job.count));
      }
    }
  }
  void forget(RequestId) override {}

 private:
  DraftFunction function_;
  Index vocab_;
};

}  // namespace

std::unique_ptr<DraftSource> make_ngram_drafts() { return std::make_unique<NgramDrafts>(); }

std::unique_ptr<DraftSource> make_function_drafts(DraftFunction function, Index vocab) {
  return std::make_unique<FunctionDrafts>(std::move(function), vocab);
}

}  // namespace hone::infer
