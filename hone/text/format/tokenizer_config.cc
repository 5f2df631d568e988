// SPDX-License-Identifier: Apache-2.0
#include "hone/text/format/json_field.h"
#include "hone/text/format/tokenizer_json.h"
#include "hone/text/format/vocab_table.h"
#include "hone/text/pre_tokenizer.h"

namespace hone::text {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

bool is_special(TokenType type) { return type == TokenType::Unknown || type == TokenType::Control; }

// A special token is spelled "<s>" or {"content": "<s>", …}.
std::optional<TokenId> read_special(const Vocabulary& v, const JsonField& config, const char* key,
                                    std::string_view where) {
  const Json* value = config.find(key);
  if (value == nullptr) return std::nullopt;
  const std::string piece =
      value->is_object() ? JsonField(*value, where).string("content", "") : config.string(key, "");
  return find_piece(v, piece);
}

}  // namespace

void apply_tokenizer_config(Vocabulary& v, const Json& json, std::string_view where) {
  const JsonField config(json, where);
  const auto set = [&](std::optional<TokenId>& id, const char* key) {
    if (const auto found = read_special(v, config, key, where)) id = found;
  };
  set(v.bos, "bos_token");
  set(v.eos, "eos_token");
  set(v.padding, "pad_token");
  if (!v.unknown) set(v.unknown, "unk_token");
  // These classes build the template from the two flags; other classes keep the template of
  // tokenizer.json.
  if (config.string("tokenizer_class", "").find("Llama") != std::string::npos) {
    v.add_bos = config.flag("add_bos_token", v.add_bos) && v.bos.has_value();
    v.add_eos = config.flag("add_eos_token", v.add_eos) && v.eos.has_value();
  }
}

Vocabulary read_vocab_and_merges(const Json& vocab, std::string_view merges,
                                 std::string_view where) {
  Vocabulary v;
  v.model = TokenizerModel::ByteLevelBpe;
  v.pieces = VocabTable(vocab, where).take_pieces();
  v.types.assign(v.pieces.size(), TokenType::Normal);
  v.pattern = kGpt2Pattern;
  bool first = true;
  while (!merges.empty()) {
    const auto end = merges.find('\n');
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(end == std::string_view::npos ? merges.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool header = first && line.starts_with("#version");
    first = false;
    if (!header && !line.empty()) v.merges.push_back(split_merge(line, where));
  }
  if (const auto id = find_piece(v, kEndOfText)) {
    v.types[*id] = TokenType::Control;
    v.bos = v.eos = id;
  }
  return v;
}

Json to_tokenizer_config_json(const Vocabulary& v) {
  Json json = Json::object();
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  const auto put = [&](const char* key, std::optional<TokenId> id) {
    if (id) json[key] = v.pieces[*id];
  };
  put("bos_token", v.bos);
  put("eos_token", v.eos);
  put("pad_token", v.padding);
  // transformers makes it a special token, so it must be one already.
  if (v.unknown && is_special(v.types[*v.unknown])) put("unk_token", v.unknown);
  json["add_bos_token"] = v.add_bos;
  json["add_eos_token"] = v.add_eos;
  json["clean_up_tokenization_spaces"] = false;
  return json;
}

}  // namespace hone::text
