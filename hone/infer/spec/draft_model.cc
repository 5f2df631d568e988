// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/draft_model.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/text/vocabulary.h"

namespace hone::infer {
namespace {

void check_same_vocabulary(const model_io::ModelFile& target, const model_io::ModelFile& draft) {
  const auto own = target.tokenizer(), other = draft.tokenizer();
  if (own == nullptr || other == nullptr) {
    HONE_CHECK(draft.architecture().vocab_size == target.architecture().vocab_size, "draft model",
               concat("the model's vocabulary of ", target.architecture().vocab_size, " tokens"),
               draft.architecture().vocab_size);
    return;
  }
  const auto tokens = static_cast<TokenId>(text::unpadded_size(own->vocabulary()));
  const auto found = static_cast<TokenId>(text::unpadded_size(other->vocabulary()));
  HONE_CHECK(found == tokens, "draft model",
             concat("the model's vocabulary of ", tokens, " tokens"), found);
  for (TokenId id = 0; id < tokens; ++id) {
    const bool is_same =
        other->piece(id) == own->piece(id) && other->is_control(id) == own->is_control(id);
    HONE_CHECK(is_same, "draft model",
               concat("the model's vocabulary, in which token ", id, " is '", own->piece(id), "'"),
               concat("'", other->piece(id), "'"));
  }
}

}  // namespace

std::unique_ptr<model_io::ModelFile> open_draft_file(const std::filesystem::path& path,
                                                     const model_io::ModelFile& target) {
  auto file = model_io::open_model_or_throw(path, {.tokenizer = {}, .need_tokenizer = false});
  check_same_vocabulary(target, *file);
  return file;
}

DraftModel::DraftModel(std::unique_ptr<model_io::ModelFile> file, const RunnerOptions& options,
                       Executor& executor)
    : file_(std::move(file)), runner_(*file_, options, executor) {}

std::unique_ptr<DraftSource> DraftModel::make_source(ModelDraftsOptions options,
                                                     Index max_sequences, const Clock& clock) {
  options.context = std::min(options.context, file_->architecture().context);
  if (options.kv_bytes == 0) {
    options.kv_bytes = fitting_kv_bytes(runner_.kv_groups(), options.context, runner_.max_rows(),
                                        max_sequences, available_memory_bytes() / 4);
  }
  return std::make_unique<ModelDrafts>(runner_, options, clock);
}

}  // namespace hone::infer
