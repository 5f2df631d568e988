// SPDX-License-Identifier: Apache-2.0
#include "hone/text/pre_tokenizer.h"

#include "hone/core/check.h"

namespace hone::text {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// Words by their case, as in the vocabularies tekken and o200k.
#define HONE_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define HONE_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?)" HONE_UPPER "*" HONE_LOWER R"(+|[^\r\n\p{L}\p{N}]?)" HONE_UPPER
    "+" HONE_LOWER R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?)" HONE_UPPER "*" HONE_LOWER
    R"(+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?)" HONE_UPPER "+" HONE_LOWER
    R"(*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
#undef HONE_UPPER
#undef HONE_LOWER

constexpr std::string_view kNone, kEachDigit = R"(\p{N})";

struct KnownName {
  std::string_view name;
  const std::string_view &pattern, &further_pattern;
  bool ignore_merges;
};

// Writers use the first name of a pattern.
const KnownName kKnownNames[] = {
    {"gpt-2", kGpt2Pattern, kNone, false},
    {"default", kGpt2Pattern, kNone, false},
    {"a.x-4.0", kGpt2Pattern, kNone, false},
    {"mellum", kGpt2Pattern, kNone, false},
    {"llama-bpe", kLlama3Pattern, kNone, true},
    {"llama3", kLlama3Pattern, kNone, true},
    {"llama-v3", kLlama3Pattern, kNone, true},
    {"falcon3", kLlama3Pattern, kNone, true},
    {"pixtral", kLlama3Pattern, kNone, true},
    {"dbrx", kLlama3Pattern, kNone, false},
    {"smaug-bpe", kLlama3Pattern, kNone, false},
    {"qwen2", kQwen2Pattern, kNone, false},
    {"deepseek-r1-qwen", kQwen2Pattern, kNone, false},
    {"megrez", kQwen2Pattern, kNone, false},
    {"smollm", kEachDigit, kGpt2Pattern, false},
    {"refact", kEachDigit, kGpt2Pattern, false},
    {"starcoder", kEachDigit, kGpt2Pattern, false},
    {"command-r", kEachDigit, kGpt2Pattern, false},
    {"codeshell", kEachDigit, kGpt2Pattern, false},
    {"tekken", kTekkenPattern, kNone, true},
    {"gpt-4o", kO200kPattern, kNone, false},
};

std::vector<std::string> further_patterns(const KnownName& known) {
  if (known.further_pattern.empty()) return {};
  return {std::string(known.further_pattern)};
}

const KnownName& find_known(std::string_view name, std::string_view where) {
  for (const KnownName& known : kKnownNames) {
    if (known.name == name) return known;
  }
  std::string names;
  for (const KnownName& known : kKnownNames) names += concat(names.empty() ? "" : ", ", known.name);
  fail_unsupported(where, concat("one of ", names, " as tokenizer.ggml.pre"),
                   concat("\"", name.substr(0, 80), "\""));
}

}  // namespace

void set_pre_tokenizer(Vocabulary& vocabulary, std::string_view name, std::string_view where) {
  const KnownName& known = find_known(name, where);
  vocabulary.pattern = known.pattern;
  vocabulary.further_patterns = further_patterns(known);
  vocabulary.ignore_merges = known.ignore_merges;
}

std::optional<std::string_view> pre_name_for(const Vocabulary& vocabulary) {
  for (const KnownName& known : kKnownNames) {
    if (known.pattern == vocabulary.pattern &&
        further_patterns(known) == vocabulary.further_patterns &&
        known.ignore_merges == vocabulary.ignore_merges) {
      return known.name;
    }
  }
  return std::nullopt;
}

std::pair<std::string, std::string> split_merge(std::string_view merge, std::string_view where) {
  const auto space = merge.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != std::string_view::npos) {
    fail_corrupt(where, "merges of two pieces and one space",
                 concat("\"", merge.substr(0, 80), "\""));
  }
  return {std::string(merge.substr(0, space)), std::string(merge.substr(space + 1))};
}

}  // namespace hone::text
