// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/lm_data.h"

#include <optional>
#include <string_view>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/machine/trace.h"
#include "hone/data/text_source.h"
#include "hone/text/bpe/byte_alphabet.h"
#include "hone/text/bpe_trainer.h"
#include "hone/text/pre_tokenizer.h"
#include "hone/text/vocabulary.h"
#include "hone/train/stop_scope.h"

namespace hone::task {
namespace {

data::TextCorpus load_corpus(const LmConfig& config) {
  if (!config.data.path.empty()) return data::load_text(config.data.path);
  return data::generate_story_corpus(
      data::StoryGrammar(), static_cast<std::uint64_t>(config.trainer.seed),
      {.train = config.data.stories, .held_out = config.data.held_out_stories});
}

text::TokenStream encode_documents(const text::Tokenizer& tokenizer,
                                   const std::vector<std::string>& documents, bool separate) {
  HONE_TRACE_ZONE("tokenize", {"documents", documents.size()});
  const std::optional<text::TokenId> eos = tokenizer.eos();
  HONE_REQUIRE(!separate || eos, "model.init",
               "Its tokenizer has no end-of-text token to put between documents.");
  text::TokenStream out;
  for (const std::string& document : documents) {
    check_stop();
    std::vector<text::TokenId> ids = tokenizer.encode(document);
    if (separate && (ids.empty() || ids.back() != *eos)) ids.push_back(*eos);
    out.add_document(ids);
  }
  return out;
}

std::vector<Index> bytes_of_tokens(const text::Tokenizer& tokenizer) {
  std::vector<Index> out;
  for (text::TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    out.push_back(tokenizer.is_control(id) ? 0
                                           : static_cast<Index>(tokenizer.piece_bytes(id).size()));
  }
  return out;
}

std::shared_ptr<const text::Tokenizer> train_bpe_tokenizer(const std::vector<std::string>& texts,
                                                           Index vocab_size) {
  HONE_TRACE_ZONE("train tokenizer", {"texts", texts.size()}, {"vocab", vocab_size});
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return text::make_tokenizer(text::train_byte_level_bpe(
      views, {.vocab_size = vocab_size, .special_tokens = {kEndOfText}}));
}

}  // namespace

std::shared_ptr<const text::Tokenizer> make_byte_tokenizer() {
  text::Vocabulary vocabulary;
  vocabulary.pattern = text::kGpt2Pattern;
  for (int byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(byte);
    vocabulary.pieces.push_back(text::spell_bytes({&letter, 1}));
    vocabulary.types.push_back(text::TokenType::Normal);
  }
  vocabulary.pieces.emplace_back(kEndOfText);
  vocabulary.types.push_back(text::TokenType::Control);
  vocabulary.bos = vocabulary.eos = 256;
  return text::make_tokenizer(std::move(vocabulary));
}

LmData load_lm_data(const LmConfig& config, std::shared_ptr<const text::Tokenizer> tokenizer) {
  HONE_TRACE_ZONE("load data");
  const data::TextCorpus corpus = load_corpus(config);
  LmData out;
  out.name = corpus.name;
  out.train_bytes = corpus.train_bytes();
  out.held_out_bytes = corpus.held_out_bytes();
  out.hash = sha256_hex_of_text(concat(sha256_hex_of_text(data::join_documents(corpus.train)),
                                       sha256_hex_of_text(data::join_documents(corpus.held_out))));
  if (tokenizer == nullptr) {
    tokenizer = config.data.tokenizer == "byte"
                    ? make_byte_tokenizer()
                    : train_bpe_tokenizer(corpus.train, config.data.vocab_size);
  }
  out.tokenizer = std::move(tokenizer);
  const bool separate = !config.data.path.empty() && corpus.train.size() > 1;
  out.train = encode_documents(*out.tokenizer, corpus.train, separate);
  out.held_out = {encode_documents(*out.tokenizer, corpus.held_out, separate),
                  bytes_of_tokens(*out.tokenizer)};
  log_info(concat(out.name, ": ", out.train_bytes, " bytes to train on, ", out.held_out_bytes,
                  " held out; ", out.tokenizer->vocab_size(), " tokens, ",
                  static_cast<double>(out.train_bytes) / static_cast<double>(out.train.ids.size()),
                  " bytes each"));
  return out;
}

TokenWindows training_windows(const LmConfig& config, const LmData& data) {
  const auto seed = static_cast<std::uint64_t>(config.trainer.seed);
  const bool one_stream = config.data.windows == "stream" || data.train.ends.size() == 1;
  if (one_stream) return {data.train.ids, window_of(config), seed};
  return {data.train, window_of(config), seed};
}

}  // namespace hone::task
