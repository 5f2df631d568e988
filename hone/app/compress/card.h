// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hone/app/compress/compress.h"
#include "hone/app/model_output.h"
#include "hone/compress/pass.h"

namespace hone::app {

// A path beside an output, which may be a file.
std::filesystem::path beside(const std::filesystem::path& out, std::string_view suffix);

// A text on which models are compared.
struct CardText {
  std::string name;
  std::vector<std::string> documents = {};
  std::optional<std::vector<text::TokenId>> ids = {};  // instead of documents
};

// The held-out parts of the job's texts. Throws Error{CorruptFile} for one that has none.
std::vector<CardText> card_texts(const CompressJob& job);

// Writes changed models beside the output, opens them with the runtime and compares them to the
// original. The gate sees the worst of the texts.
class CardMeter {
 public:
  CardMeter(const CompressJob& job, const ModelOutput& out, Executor& executor)
      : job_(job), out_(out), executor_(executor), texts_(card_texts(job)) {}

  const std::vector<CardText>& texts() const { return texts_; }
  void add_text(CardText text) { texts_.push_back(std::move(text)); }
  compress::Quality operator()(const compress::Model& model) const;

 private:
  compress::Quality measure(const std::filesystem::path& file, const CardText& text) const;

  const CompressJob& job_;
  const ModelOutput& out_;
  Executor& executor_;
  std::vector<CardText> texts_;
};

// How the errors of layers add up on the beginnings of texts
// (compress/quality/error_propagation.h); null if the models have different layers.
Json layer_errors(const model_io::ModelFile& original, const compress::Model& model,
                  const CardText& text, Executor& executor);

// What a compressed model is written from.
model_io::ModelSource source_of(const compress::Model& model, const text::Tokenizer* tokenizer);

// The sizes of `model`, which was written to `out`: its file and the parts of it, bits per weight,
// and the memory that the runtime takes to load it and to make a token (resident, and the most at
// any time).
Json sizes_of(const std::filesystem::path& out, const compress::Model& model,
              const std::filesystem::path& tokenizer, Executor& executor);

}  // namespace hone::app
