// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "hone/infer/spec/model_drafts.h"

namespace hone::infer {

// A smaller model that drafts for another one.
class DraftModel {
 public:
  // Throws as model_io does, and Error{InvalidArgument} unless both models have the same
  // vocabulary: equal pieces at equal ids; if one of them has no tokenizer, equally many tokens.
  // Models that have the same pieces may have different numbers of unused rows behind them.
  DraftModel(const std::filesystem::path& path, const model_io::ModelFile& target,
             const RunnerOptions& options, Executor& executor);

  std::vector<std::filesystem::path> files() const { return file_->files(); }

  // options.context is that of the target, and options.kv_bytes may be 0, as in DraftOptions. This
  // must outlive the source.
  std::unique_ptr<DraftSource> make_source(ModelDraftsOptions options, Index max_sequences,
                                           const Clock& clock);

 private:
  std::unique_ptr<model_io::ModelFile> file_;
  ModelRunner runner_;
};

}  // namespace hone::infer
