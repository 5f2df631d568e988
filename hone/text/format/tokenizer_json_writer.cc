// SPDX-License-Identifier: Apache-2.0
#include "hone/text/bpe/space_mark.h"
#include "hone/text/format/json_field.h"
#include "hone/text/format/tokenizer_json.h"
#include "hone/text/pre_tokenizer.h"

namespace hone::text {
namespace {

constexpr std::string_view kOp = "tokenizer.json";

Json sequence(const char* list, Json parts) {
  if (parts.empty()) return nullptr;
  if (parts.size() == 1) return parts[0];
  return {{"type", "Sequence"}, {list, std::move(parts)}};
}

Json replace(const char* kind, std::string_view pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

Json added_tokens_json(const Vocabulary& v) {
  Json tokens = Json::array();
  for (const AddedToken& token : effective_added_tokens(v)) {
    tokens.push_back({{"id", token.id},
                      {"content", v.pieces[token.id]},
                      {"single_word", token.single_word},
                      {"lstrip", token.lstrip},
                      {"rstrip", token.rstrip},
                      {"normalized", token.normalized},
                      {"special", token.special}});
  }
  return tokens;
}

Json model_json(const Vocabulary& v) {
  const bool pieces = v.model == TokenizerModel::SentencePieceBpe;
  const bool has_unknown = v.unknown && v.types[*v.unknown] == TokenType::Unknown;
  Json model = Json::object();
  model["type"] = "BPE";
  model["dropout"] = nullptr;
  model["unk_token"] = has_unknown ? Json(v.pieces[*v.unknown]) : Json();
  model["continuing_subword_prefix"] = nullptr;
  model["end_of_word_suffix"] = nullptr;
  model["fuse_unk"] = pieces && v.fuse_unknown;
  model["byte_fallback"] = pieces && v.byte_fallback;
  model["ignore_merges"] = v.ignore_merges;
  // The pieces are distinct, so appending them skips ordered_json's linear search for each key.
  Json::object_t vocab;
  const std::size_t listed = unpadded_size(v);
  for (std::size_t id = 0; id < listed; ++id) vocab.push_back({v.pieces[id], id});
  model["vocab"] = std::move(vocab);
  const auto merges = merges_by_score(v);
  bool spaces = false;
  for (const auto& [left, right] : merges) {
    spaces = spaces || (left + right).find(' ') != std::string::npos;
  }
  Json list = Json::array();
  for (const auto& [left, right] : merges) {
    list.push_back(spaces ? Json::array({left, right}) : Json(concat(left, " ", right)));
  }
  model["merges"] = std::move(list);
  return model;
}

Json template_json(const Vocabulary& v) {
  const auto special = [&](TokenId id) {
    return Json{{"SpecialToken", {{"id", v.pieces[id]}, {"type_id", 0}}}};
  };
  const auto text = [](const char* name) {
    return Json{{"Sequence", {{"id", name}, {"type_id", 0}}}};
  };
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  for (const char* name : {"A", "B"}) {
    Json part = Json::array();
    if (v.add_bos) part.push_back(special(*v.bos));
    part.push_back(text(name));
    if (v.add_eos) part.push_back(special(*v.eos));
    if (single.empty()) single = part;
    pair.insert(pair.end(), part.begin(), part.end());
  }
  for (const auto id : {v.add_bos ? v.bos : std::nullopt, v.add_eos ? v.eos : std::nullopt}) {
    if (!id) continue;
    const std::string& piece = v.pieces[*id];
    tokens[piece] = {{"id", piece}, {"ids", {*id}}, {"tokens", {piece}}};
  }
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(tokens)}};
}

void put_byte_level(Json& json, const Vocabulary& v) {
  const bool plain = v.pattern == kGpt2Pattern && v.further_patterns.empty();
  if (v.add_space_prefix && !plain) {
    fail_unsupported(kOp, "The format supports add_space_prefix only with GPT-2's splitter.");
  }
  Json splitters = Json::array();
  const auto split = [&](const std::string& pattern) {
    splitters.push_back({{"type", "Split"},
                         {"pattern", {{"Regex", pattern}}},
                         {"behavior", "Isolated"},
                         {"invert", false}});
  };
  if (!plain && !v.pattern.empty()) split(v.pattern);
  for (const std::string& pattern : v.further_patterns) split(pattern);
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", v.add_space_prefix},
                           {"trim_offsets", true},
                           {"use_regex", plain}};
  splitters.push_back(byte_level);
  json["normalizer"] = v.nfc ? Json{{"type", "NFC"}} : Json();
  json["pre_tokenizer"] = sequence("pretokenizers", std::move(splitters));
  json["post_processor"] = v.add_bos || v.add_eos ? template_json(v) : byte_level;
  json["decoder"] = byte_level;
}

void put_sentencepiece(Json& json, const Vocabulary& v) {
  Json normalizers = Json::array(), decoders = Json::array();
  json["pre_tokenizer"] = nullptr;
  if (v.prefix_if_missing) {
    const char* scheme = v.prefix_only_first ? "first" : "always";
    json["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", kSpaceMark},
                             {"prepend_scheme", v.add_space_prefix ? scheme : "never"},
                             {"split", false}};
  } else {
    if (v.prefix_only_first) {
      fail_unsupported(kOp, "The format cannot express a dummy space only at the start of a text.");
    }
    if (v.remove_extra_whitespaces) {
      normalizers.push_back(replace("Regex", kOuterSpaces, ""));
      normalizers.push_back(replace("Regex", kInnerSpaces, " "));
    }
    if (v.add_space_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    normalizers.push_back(replace("String", " ", kSpaceMark));
  }
  json["normalizer"] = normalizers.empty()
                           ? Json()
                           : Json{{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
  json["post_processor"] = v.add_bos || v.add_eos ? template_json(v) : Json();
  decoders.push_back(replace("String", kSpaceMark, " "));
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (v.add_space_prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  json["decoder"] = sequence("decoders", std::move(decoders));
}

}  // namespace

Json to_tokenizer_json(const Vocabulary& v) {
  Json json = Json::object();
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = added_tokens_json(v);
  v.model == TokenizerModel::ByteLevelBpe ? put_byte_level(json, v) : put_sentencepiece(json, v);
  json["model"] = model_json(v);
  return json;
}

}  // namespace hone::text
