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
      const std::span<const TokenId> text = job.sequence->tokens();
      const auto [at, is_new] = texts_.try_emplace(job.id);
      Text& known = at->second;
      if (is_new) known.skipped = std::max<Index>(0, std::ssize(text) - kMostIndexed);
      const Index taken = known.skipped + known.index.size();
      known.index.append(text.subspan(static_cast<std::size_t>(taken)));
      job.drafts = known.index.propose(job.count);
    }
  }
  void forget(RequestId id) override { texts_.erase(id); }

 private:
  // The end of a long prompt is looked at alone: the others wait meanwhile.
  static constexpr Index kMostIndexed = 8192;
  struct Text {
    NgramIndex index{};
    Index skipped = 0;  // tokens before those of the index
  };
  std::map<RequestId, Text> texts_;
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
