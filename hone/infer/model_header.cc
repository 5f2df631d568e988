// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model_header.h"

#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/infer/engine_loop.h"
#include "hone/infer/kv/kv_plan.h"
#include "hone/infer/spec/draft_model.h"

namespace hone::infer {
namespace {

const EngineOptions& checked(const EngineOptions& options) {
  HONE_REQUIRE(options.executor != nullptr, "engine", "The options have no executor.");
  HONE_CHECK(options.context >= 0, "context", "0 or more tokens", options.context);
  HONE_CHECK(options.prefill_chunk >= 1 && options.prefill_chunk <= 8192, "prefill chunk",
             "1 to 8192 tokens", options.prefill_chunk);
  HONE_CHECK(options.max_queue >= 1, "max queue", "at least 1 request", options.max_queue);
  HONE_CHECK(options.max_sequences >= 1 && options.max_sequences <= 1024, "max sequences",
             "1 to 1024 requests", options.max_sequences);
  HONE_CHECK(options.kv_bytes >= 0, "kv bytes", "0 or more bytes", options.kv_bytes);
  const DraftOptions& draft = options.draft;
  HONE_CHECK(draft.kv_bytes >= 0, "draft kv bytes", "0 or more bytes", draft.kv_bytes);
  const int sources =
      (draft.ngram ? 1 : 0) + (draft.model.empty() ? 0 : 1) + (draft.function ? 1 : 0);
  HONE_CHECK(sources <= 1, "draft", "one source of drafts", sources);
  return options;
}

}  // namespace

ModelHeader ModelHeader::open_or_throw(const std::filesystem::path& model,
                                       const EngineOptions& options) {
  HONE_TRACE_ZONE("open model", {"file", model.string()});
  checked(options);
  ModelHeader header(
      model_io::open_model_or_throw(
          model, {.tokenizer = options.tokenizer, .need_tokenizer = options.need_tokenizer}),
      options);
  const model_io::Architecture& architecture = header.file_->architecture();
  HONE_CHECK(options.context <= architecture.context, "context",
             concat("at most the model's ", architecture.context, " tokens"), options.context);
  // The cache is allocated once the weights are in memory, and then compared again.
  check_kv_budget(loop_options(options, header.context()),
                  plan_kv(architecture, cell_dtype(options.kv)).groups);
  if (!options.draft.model.empty()) {
    header.draft_ = open_draft_file(options.draft.model, *header.file_);
  }
  return header;
}

ModelHeader::ModelHeader(std::unique_ptr<model_io::ModelFile> file, const EngineOptions& options)
    : options_(options), file_(std::move(file)), tokenizer_(file_->tokenizer()) {}

Index ModelHeader::context() const {
  return options_.context == 0 ? file_->architecture().context : options_.context;
}

std::string ModelHeader::chat_template() const {
  const std::string* const found = file_->metadata().chat_template();
  return found == nullptr ? std::string() : *found;
}

const text::Tokenizer& ModelHeader::tokenizer() const {
  if (tokenizer_ == nullptr) fail_unsupported("tokenizer", "This model has no vocabulary.");
  return *tokenizer_;
}

void ModelHeader::check(const Request& request) const {
  validate(request,
           {.vocab_size = vocab_size(), .context = context(), .has_tokenizer = has_tokenizer()});
}

}  // namespace hone::infer
