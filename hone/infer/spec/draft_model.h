// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "hone/infer/spec/model_drafts.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

// Opens the file of a draft model for `target`. Reads no weights. Throws as model_io does, and
// Error{InvalidArgument} unless both models have the same vocabulary: equal pieces at equal ids or,
// if one of them has no tokenizer, the same number of tokens. Models with the same pieces may have
// different numbers of unused rows after them.
std::unique_ptr<model_io::ModelFile> open_draft_file(const std::filesystem::path& path,
                                                     const model_io::ModelFile& target);

// A smaller model that drafts for another one.
class DraftModel {
 public:
  // `file` is from open_draft_file().
  DraftModel(std::unique_ptr<model_io::ModelFile> file, const RunnerOptions& options,
             Executor& executor);

  std::vector<std::filesystem::path> files() const { return file_->files(); }
  Index weight_bytes() const { return runner_.weight_bytes(); }

  // options.context is the context of the target, and options.kv_bytes may be 0, as in
  // DraftOptions. This object must outlive the source.
  std::unique_ptr<DraftSource> make_source(ModelDraftsOptions options, Index max_sequences,
                                           const Clock& clock);

 private:
  std::unique_ptr<model_io::ModelFile> file_;
  ModelRunner runner_;
};

}  // namespace hone::infer
