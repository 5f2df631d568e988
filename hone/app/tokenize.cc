// SPDX-License-Identifier: Apache-2.0
#include "hone/app/tokenize.h"

#include <charconv>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/model_io/model_file.h"
#include "hone/model_io/tokenizer_file.h"
#include "hone/text/format/tok_bin.h"

namespace hone::app {
namespace {

using text::TokenId;

Json describe(const text::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Json pieces = Json::array();
  for (const TokenId id : ids) pieces.push_back(tokenizer.piece(id));
  return {{"tokens", ids}, {"pieces", std::move(pieces)}};
}

}  // namespace

std::shared_ptr<const text::Tokenizer> open_any_tokenizer(const std::filesystem::path& model) {
  // Both a llama2.c model and its tokenizer are named .bin, so the contents decide.
  const bool llama2c =
      model.extension() == ".bin" && !text::looks_like_tok_bin(MmapFile(model).bytes());
  return llama2c ? model_io::open_model_or_throw(model)->tokenizer()
                 : model_io::open_tokenizer(model);
}

Json tokenize(const text::Tokenizer& tokenizer, std::string_view text,
              const text::EncodeOptions& options) {
  Json json = describe(tokenizer, tokenizer.encode(text, options));
  json["bytes"] = text.size();
  return json;
}

Json detokenize(const text::Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                bool keep_special) {
  Json json = describe(tokenizer, ids);
  const std::string bytes = tokenizer.decode(ids, keep_special);
  text::Utf8Stream stream;
  const std::string complete = stream.push(bytes);
  json["bytes"] = bytes.size();
  json["text"] = complete + stream.finish();
  return json;
}

std::vector<TokenId> parse_token_ids(std::string_view list) {
  constexpr std::string_view kSeparators = " \t\r\n,[]";
  std::vector<TokenId> ids;
  for (;;) {
    const auto begin = list.find_first_not_of(kSeparators);
    if (begin == std::string_view::npos) return ids;
    list.remove_prefix(begin);
    const std::string_view word = list.substr(0, list.find_first_of(kSeparators));
    TokenId id = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
    HONE_CHECK(problem == std::errc() && end == word.data() + word.size(), "tokenize",
               "token ids separated by white space or commas",
               concat("\"", word.substr(0, 40), "\""));
    ids.push_back(id);
    list.remove_prefix(word.size());
  }
}

}  // namespace hone::app
