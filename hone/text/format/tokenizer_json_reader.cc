// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include "hone/text/bpe/byte_alphabet.h"
#include "hone/text/bpe/space_mark.h"
#include "hone/text/format/json_field.h"
#include "hone/text/format/tokenizer_json.h"
#include "hone/text/format/vocab_table.h"
#include "hone/text/pre_tokenizer.h"

namespace hone::text {
namespace {

// Whether an expression of the kind that tiktoken writes has alternatives for letters, numbers,
// white space and everything else.
bool matches_all(std::string_view expression) {
  const auto has = [&](std::string_view part) { return expression.find(part) != expression.npos; };
  const bool has_numbers = has("|\\p{N}|") || has("|\\p{N}{1,3}|") || has("| ?\\p{N}+|");
  const bool has_letters =
      has("]?\\p{L}+|") || has(" ?\\p{L}+|") || (has("\\p{Lu}") && has("\\p{Ll}") && has("]?["));
  return has_numbers && has_letters && has(" ?[^\\s\\p{L}\\p{N}]+") &&
         expression.ends_with("|\\s+");
}

// The leaves of nested {"type": "Sequence", `list`: […]} components.
std::vector<const Json*> flatten(const Json* component, const char* list, std::string_view where) {
  if (component == nullptr || component->is_null()) return {};
  const JsonField field(*component, where);
  if (field.type() != "Sequence") return {component};
  const Json& parts = field.require(list);
  if (!parts.is_array()) fail_corrupt(where, concat("a list as \"", list, "\""), parts.type_name());
  std::vector<const Json*> leaves;
  for (const Json& part : parts) {
    const auto inner = flatten(&part, list, where);
    leaves.insert(leaves.end(), inner.begin(), inner.end());
  }
  return leaves;
}

[[noreturn]] void fail_component(std::string_view what, const Json& component,
                                 std::string_view where) {
  fail_unsupported(where, concat("This ", what, " is not supported: ", JsonField::text(component)));
}

class Reader {
 public:
  Reader(const Json& json, std::string_view where) : root_(json, where), where_(where) {}

  Vocabulary read() {
    read_model();
    const bool byte_level = reads_as_byte_level();
    v_.model = byte_level ? TokenizerModel::ByteLevelBpe : TokenizerModel::SentencePieceBpe;
    byte_level ? read_byte_level() : read_sentencepiece();
    read_post_processor();
    check_decoder();
    return std::move(v_);
  }

 private:
  std::vector<const Json*> leaves(const char* component, const char* list) const {
    return flatten(root_.find(component), list, where_);
  }
  bool reads_as_byte_level() const {
    const auto parts = leaves("pre_tokenizer", "pretokenizers");
    return std::any_of(parts.begin(), parts.end(), [this](const Json* part) {
      return JsonField(*part, where_).type() == "ByteLevel";
    });
  }

  void read_model();
  void read_merges(const Json& merges);
  void read_added_tokens(const Json& tokens, VocabTable& table);
  void read_byte_level();
  void read_split(const Json& part, const JsonField& field);
  void read_sentencepiece();
  void read_space_normalizer(const Json& part);
  bool splits_nothing(const JsonField& field) const;
  void read_metaspace(const Json& part);
  void read_post_processor();
  void read_template(const Json& part);
  void check_decoder() const;
  void score_by_merges();
  void add_pattern(std::string pattern) {
    (v_.pattern.empty() ? v_.pattern : v_.further_patterns.emplace_back()) = std::move(pattern);
  }

  JsonField root_;
  std::string_view where_;
  Vocabulary v_;
  bool byte_fallback_ = false;
  bool marks_spaces_ = false;
};

void Reader::read_model() {
  const Json& json = root_.require("model");
  const JsonField model(json, where_);
  const std::string type = model.string("type", "BPE");
  if (type != "BPE") fail_unsupported(where_, "a BPE model", concat("\"", type, "\""));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string(affix, "").empty())
      fail_unsupported(where_, concat("A ", affix, " is not supported."));
  }
  const Json* dropout = model.find("dropout");
  if (dropout != nullptr && *dropout != 0) fail_unsupported(where_, "Dropout is not supported.");
  byte_fallback_ = model.flag("byte_fallback", false);
  v_.fuse_unknown = model.flag("fuse_unk", false);
  v_.ignore_merges = model.flag("ignore_merges", false);

  VocabTable table(model.require("vocab"), where_);
  const Json* added = root_.find("added_tokens");
  if (added != nullptr) read_added_tokens(*added, table);
  v_.pieces = table.take_pieces();
  v_.types.assign(v_.pieces.size(), TokenType::Normal);
  for (std::size_t id = 0; id < v_.pieces.size(); ++id) {
    if (!v_.pieces[id].empty()) continue;  // a gap
    v_.pieces[id] = padding_piece(id);
    v_.types[id] = TokenType::Unused;
  }
  for (const AddedToken& token : v_.added_tokens) {
    v_.types[token.id] = token.special ? TokenType::Control : TokenType::UserDefined;
  }
  const std::string unknown = model.string("unk_token", "");
  if (!unknown.empty()) {
    v_.unknown = find_piece(v_, unknown);
    if (!v_.unknown)
      fail_corrupt(where_, concat("The unk_token \"", unknown, "\" is not in the vocabulary."));
    v_.types[*v_.unknown] = TokenType::Unknown;
  }
  read_merges(model.require("merges"));
}

void Reader::read_merges(const Json& merges) {
  if (!merges.is_array()) fail_corrupt(where_, "a list of merges", merges.type_name());
  v_.merges.reserve(merges.size());
  for (const Json& merge : merges) {
    if (merge.is_string()) {
      v_.merges.push_back(split_merge(merge.get_ref<const std::string&>(), where_));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      v_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      fail_corrupt(where_, "merges of two pieces", JsonField::text(merge));
    }
  }
}

void Reader::read_added_tokens(const Json& tokens, VocabTable& table) {
  if (!tokens.is_array()) fail_corrupt(where_, "a list of added_tokens", tokens.type_name());
  for (const Json& token : tokens) {
    const JsonField field(token, where_);
    const TokenId id = table.add(field.string("content", ""), field.require("id"));
    v_.added_tokens.push_back({.id = id,
                               .special = field.flag("special", false),
                               .lstrip = field.flag("lstrip", false),
                               .rstrip = field.flag("rstrip", false),
                               .single_word = field.flag("single_word", false),
                               .normalized = field.flag("normalized", true)});
  }
}

void Reader::read_byte_level() {
  for (const Json* part : leaves("normalizer", "normalizers")) {
    if (JsonField(*part, where_).type() != "NFC") fail_component("normalizer", *part, where_);
    v_.nfc = true;
  }
  bool done = false;
  for (const Json* part : leaves("pre_tokenizer", "pretokenizers")) {
    const JsonField field(*part, where_);
    const std::string type = field.type();
    if (done) fail_component("pre_tokenizer after ByteLevel", *part, where_);
    if (type == "Split") {
      read_split(*part, field);
    } else if (type == "Digits") {
      add_pattern(field.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "ByteLevel") {
      v_.add_space_prefix = field.flag("add_prefix_space", true);
      if (v_.add_space_prefix && !v_.pattern.empty()) {
        fail_unsupported(where_, "add_prefix_space after another splitter is not supported.");
      }
      if (field.flag("use_regex", true)) add_pattern(std::string(kGpt2Pattern));
      done = true;
    } else {
      fail_component("pre_tokenizer", *part, where_);
    }
  }
}

void Reader::read_split(const Json& part, const JsonField& field) {
  const JsonField pattern(field.require("pattern"), where_);
  const std::string literal = pattern.string("String", "");
  std::string expression = pattern.string("Regex", "");
  // With Isolated, matches and the text between them are parts, whether they are exchanged or not.
  // Removed with "invert" drops the text between matches: the same for an expression that leaves
  // nothing between them.
  const std::string behavior = field.string("behavior", "");
  const bool is_isolated =
      behavior == "Isolated" ||
      (behavior == "Removed" && field.flag("invert", false) && matches_all(expression));
  if (!is_isolated || literal.empty() == expression.empty()) {
    fail_component("pre_tokenizer", part, where_);
  }
  for (const char c : literal) {
    const bool plain = (c & 0x80) != 0 || std::isalnum(static_cast<unsigned char>(c)) != 0;
    expression += plain ? std::string(1, c) : std::string{'\\', c};
  }
  add_pattern(std::move(expression));
}

void Reader::read_sentencepiece() {
  for (const Json* part : leaves("normalizer", "normalizers")) read_space_normalizer(*part);
  for (const Json* part : leaves("pre_tokenizer", "pretokenizers")) read_metaspace(*part);
  if (!marks_spaces_) {
    fail_unsupported(where_,
                     "There is neither a ByteLevel or Metaspace pre_tokenizer nor a normalizer "
                     "that writes spaces as U+2581.");
  }
  v_.byte_fallback = byte_fallback_;
  for (std::size_t id = 0; byte_fallback_ && id < v_.pieces.size(); ++id) {
    if (v_.types[id] == TokenType::Normal && parse_byte_piece(v_.pieces[id])) {
      v_.types[id] = TokenType::Byte;
    }
  }
  if (v_.ignore_merges)
    fail_unsupported(where_, "ignore_merges without ByteLevel is not supported.");
  score_by_merges();
}

void Reader::read_space_normalizer(const Json& part) {
  const JsonField field(part, where_);
  if (field.type() == "Prepend" && field.string("prepend", "") == kSpaceMark) {
    v_.add_space_prefix = true;
    return;
  }
  if (field.type() != "Replace") fail_component("normalizer", part, where_);
  const JsonField pattern(field.require("pattern"), where_);
  const std::string content = field.string("content", "");
  const std::string expression = pattern.string("Regex", "");
  if (!marks_spaces_ && pattern.string("String", "") == " " && content == kSpaceMark) {
    marks_spaces_ = true;
  } else if (!marks_spaces_ && !v_.add_space_prefix &&
             ((expression == kOuterSpaces && content.empty()) ||
              (expression == kInnerSpaces && content == " "))) {
    v_.remove_extra_whitespaces = expression == kInnerSpaces;
  } else {
    fail_component("normalizer", part, where_);
  }
}

// Whether the component splits at spaces, of which the normalizer has left none (Gemma).
bool Reader::splits_nothing(const JsonField& field) const {
  if (!marks_spaces_ || field.type() != "Split" || field.flag("invert", false)) return false;
  return JsonField(field.require("pattern"), where_).string("String", "") == " ";
}

void Reader::read_metaspace(const Json& part) {
  const JsonField field(part, where_);
  if (splits_nothing(field)) return;
  const std::string scheme =
      field.string("prepend_scheme", field.flag("add_prefix_space", true) ? "always" : "never");
  const bool known = scheme == "always" || scheme == "first" || scheme == "never";
  if (marks_spaces_ || field.type() != "Metaspace" || !known || field.flag("split", true) ||
      field.string("replacement", "") != kSpaceMark) {
    fail_component("pre_tokenizer", part, where_);
  }
  marks_spaces_ = true;
  v_.add_space_prefix = scheme != "never";
  v_.prefix_only_first = scheme == "first";
  v_.prefix_if_missing = true;
}

// Sets scores that order unions as the merges do: 0, -1, … in the order of first appearance, then
// the pieces that no merge produces.
void Reader::score_by_merges() {
  std::unordered_map<std::string_view, TokenId> ids;
  for (const std::string& piece : v_.pieces) ids.emplace(piece, static_cast<TokenId>(ids.size()));
  v_.scores.assign(v_.pieces.size(), 1.0f);
  float next = 0.0f;
  for (const auto& [left, right] : v_.merges) {
    const auto whole = ids.find(left + right);
    if (whole != ids.end() && v_.scores[whole->second] > 0.0f) v_.scores[whole->second] = next--;
  }
  for (std::size_t id = 0; id < v_.scores.size(); ++id) {
    if (v_.scores[id] > 0.0f) v_.scores[id] = v_.types[id] == TokenType::Normal ? next-- : 0.0f;
  }
}

void Reader::read_post_processor() {
  for (const Json* part : leaves("post_processor", "processors")) {
    const std::string type = JsonField(*part, where_).type();
    if (type == "TemplateProcessing") {
      read_template(*part);
    } else if (type != "ByteLevel") {
      fail_component("post_processor", *part, where_);
    }
  }
}

// Reads the template "single": at most one special token before the text and one after it.
void Reader::read_template(const Json& part) {
  const Json& single = JsonField(part, where_).require("single");
  bool seen_text = false;
  for (const Json& item : single.is_array() ? single : Json::array({single})) {
    const JsonField field(item, where_);
    if (field.find("Sequence") != nullptr) {
      if (seen_text) fail_component("post_processor", part, where_);
      seen_text = true;
      continue;
    }
    const JsonField special(field.require("SpecialToken"), where_);
    const std::string name = special.string("id", "");
    const auto id = find_piece(v_, name);
    if (!id)
      fail_corrupt(where_, concat("The template's token \"", name, "\" is not in the vocabulary."));
    bool& adds = seen_text ? v_.add_eos : v_.add_bos;
    if (adds) fail_component("post_processor", part, where_);
    adds = true;
    (seen_text ? v_.eos : v_.bos) = *id;
  }
  if (!seen_text) fail_component("post_processor", part, where_);
}

void Reader::check_decoder() const {
  constexpr std::string_view kKnown[] = {"ByteLevel",    "Metaspace", "Replace",
                                         "ByteFallback", "Fuse",      "Strip"};
  for (const Json* part : leaves("decoder", "decoders")) {
    const std::string type = JsonField(*part, where_).type();
    if (std::find(std::begin(kKnown), std::end(kKnown), type) == std::end(kKnown)) {
      fail_component("decoder", *part, where_);
    }
  }
}

}  // namespace

Vocabulary read_tokenizer_json(const Json& json, std::string_view where) {
  return Reader(json, where).read();
}

}  // namespace hone::text
