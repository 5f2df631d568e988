// SPDX-License-Identifier: Apache-2.0
#include "hone/app/prompt_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/config/nearest_name.h"
#include "hone/core/names.h"

namespace hone::app {
namespace {

// A value and what its errors name: "prompts.jsonl, line 3: top_k".
struct Field {
  const Json& value;
  std::string where;

  [[noreturn]] void refuse(std::string_view expected) const {
    std::string got = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (got.size() > 40) got = got.substr(0, 40) + "…";
    fail_argument(where, expected, got);
  }
  template <class T>
  T number() const {
    if constexpr (std::is_floating_point_v<T>) {
      if (!value.is_number()) refuse("a number");
      const auto number = value.get<double>();
      if (!(std::abs(number) <= std::numeric_limits<T>::max())) refuse("a finite number");
      return static_cast<T>(number);
    } else {
      if (!value.is_number_integer()) refuse("a whole number");
      const bool is_large =
          value.is_number_unsigned() &&
          value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<T>::max()};
      if (is_large || (!value.is_number_unsigned() &&
                       value.get<std::int64_t>() < std::int64_t{std::numeric_limits<T>::min()})) {
        refuse("a whole number within limits");
      }
      return value.get<T>();
    }
  }
  bool boolean() const {
    if (!value.is_boolean()) refuse("true or false");
    return value.get<bool>();
  }
  std::string string() const {
    if (!value.is_string()) refuse("a string");
    return value.get<std::string>();
  }
};

bool is_id(const Json& value) { return value.is_string() || value.is_number_integer(); }

void read_id(const Field& field, PromptLine& line) {
  if (!is_id(field.value)) field.refuse("a string or a whole number");
  line.id = field.value;
}

void read_tokens(const Field& field, PromptLine& line) {
  if (!field.value.is_array()) field.refuse("an array of token ids");
  line.tokens.emplace();
  for (const Json& id : field.value) {
    line.tokens->push_back(Field{id, field.where}.number<infer::TokenId>());
  }
}

void read_stop(const Field& field, PromptLine& line) {
  line.request.stop.clear();
  if (field.value.is_string()) line.request.stop.push_back(field.string());
  if (field.value.is_string()) return;
  if (!field.value.is_array()) field.refuse("a string or an array of strings");
  for (const Json& one : field.value) line.request.stop.push_back(Field{one, field.where}.string());
}

void read_bias(const Field& field, PromptLine& line) {
  std::vector<infer::LogitBias>& biases = line.request.sampling.logit_bias;
  biases.clear();
  if (!field.value.is_object()) field.refuse("an object {\"ID\": value}");
  for (const auto& [key, value] : field.value.items()) {
    infer::LogitBias bias{.id = 0, .bias = Field{value, field.where}.number<float>()};
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), bias.id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size()) {
      fail_argument(field.where, "token ids as keys", quote_name(key));
    }
    biases.push_back(bias);
  }
}

void read_schema(const Field& field, PromptLine& line) {
  const bool is_schema = field.value.is_object() || field.value.is_boolean();
  line.request.json_schema = is_schema ? field.value.dump() : field.string();
  if (line.request.json_schema.empty()) field.refuse("a JSON schema");
}

struct Key {
  std::string_view name;
  void (*read)(const Field& field, PromptLine& line);
};

constexpr std::array kKeys{
    Key{"id", read_id},
    Key{"prompt", [](const Field& field, PromptLine& line) { line.prompt = field.string(); }},
    Key{"tokens", read_tokens},
    Key{"max_tokens", [](const Field& field,
                         PromptLine& line) { line.request.max_tokens = field.number<Index>(); }},
    Key{"min_tokens", [](const Field& field,
                         PromptLine& line) { line.request.min_tokens = field.number<Index>(); }},
    Key{"stop", read_stop},
    Key{"ignore_eos",
        [](const Field& field, PromptLine& line) { line.request.ignore_eos = field.boolean(); }},
    Key{"logprobs", [](const Field& field,
                       PromptLine& line) { line.request.logprobs = field.number<Index>(); }},
    Key{"json_schema", read_schema},
    Key{"timeout", [](const Field& field,
                      PromptLine& line) { line.request.timeout_s = field.number<double>(); }},
    Key{"seed",
        [](const Field& field, PromptLine& line) {
          line.request.sampling.seed = field.number<std::uint64_t>();
        }},
    Key{"temperature", [](const Field& field,
                          PromptLine& line) { line.sampling.temperature = field.number<float>(); }},
    Key{"top_k",
        [](const Field& field, PromptLine& line) { line.sampling.top_k = field.number<Index>(); }},
    Key{"top_p",
        [](const Field& field, PromptLine& line) { line.sampling.top_p = field.number<float>(); }},
    Key{"min_p",
        [](const Field& field, PromptLine& line) { line.sampling.min_p = field.number<float>(); }},
    Key{"repetition_penalty",
        [](const Field& field, PromptLine& line) {
          line.sampling.repetition_penalty = field.number<float>();
        }},
    Key{"presence_penalty",
        [](const Field& field, PromptLine& line) {
          line.request.sampling.presence_penalty = field.number<float>();
        }},
    Key{"frequency_penalty",
        [](const Field& field, PromptLine& line) {
          line.request.sampling.frequency_penalty = field.number<float>();
        }},
    Key{"logit_bias", read_bias},
};

[[noreturn]] void refuse_key(const std::string& where, std::string_view name) {
  std::vector<std::string_view> known;
  for (const Key& key : kKeys) known.push_back(key.name);
  fail_argument(where, describe_unknown("key", name, known));
}

using Next = LineReader::Next;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

struct NamedLine {
  std::string id;  // in JSON
  Index number = 0;
};

void refuse_equal_ids(const std::string& file, const std::vector<NamedLine>& lines) {
  const Index later = find_duplicate(std::ssize(lines), [&](Index i) -> std::string_view {
    return lines[static_cast<std::size_t>(i)].id;
  });
  if (later < 0) return;
  const NamedLine& line = lines[static_cast<std::size_t>(later)];
  const auto earlier = std::ranges::find(lines, line.id, &NamedLine::id);
  fail_argument(concat(file, ", line ", line.number),
                concat("The id ", quote_name(line.id), " is that of line ", earlier->number, "."));
}

}  // namespace

void read_prompt_line(std::string_view text, const std::string& where, PromptLine& line) {
  const Json object = parse_json(text, where);
  if (!object.is_object()) fail_corrupt(where, "a JSON object", object.type_name());
  // The id comes first, so that an error of the line can carry it.
  if (const auto id = object.find("id"); id != object.end()) {
    read_id({.value = *id, .where = where + ": id"}, line);
  }
  for (const auto& [name, value] : object.items()) {
    const auto key = std::ranges::find(kKeys, std::string_view(name), &Key::name);
    if (key == kKeys.end()) refuse_key(where, name);
    key->read({.value = value, .where = concat(where, ": ", name)}, line);
  }
  HONE_REQUIRE(object.contains("prompt") != object.contains("tokens"), where,
               "A line has either a prompt or tokens.");
}

Json read_prompt_id(std::string_view text, Index number) {
  try {
    const Json line = parse_json(text, "");
    if (line.is_object() && line.contains("id") && is_id(line["id"])) return line["id"];
  } catch (const Error&) {  // the line's result will tell
  }
  return number;
}

PromptFile::PromptFile(const std::filesystem::path& path)
    : reader_(path, kMaxLineBytes), name_(path.filename().string()) {}

Next PromptFile::next(std::string& line, int wait_ms) {
  for (;;) {
    const Next next = reader_.next(line, wait_ms);
    number_ += next == Next::Line || next == Next::TooLong;
    if (next != Next::Line || !is_blank(line)) return next;
  }
}

std::string PromptFile::where() const { return concat(name_, ", line ", number_); }

Index count_prompts(const std::filesystem::path& path, const std::stop_token& stop) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return 0;
  PromptFile file(path);
  std::vector<NamedLine> lines;
  std::string line;
  while (!stop.stop_requested()) {
    const Next next = file.next(line, 0);
    if (next == Next::End) break;
    if (next == Next::None) continue;
    const Json id = next == Next::Line ? read_prompt_id(line, file.number()) : Json(file.number());
    lines.push_back({id.dump(-1, ' ', true, Json::error_handler_t::replace), file.number()});
  }
  const bool is_interrupted = stop.stop_requested();
  HONE_REQUIRE(!lines.empty() || is_interrupted, path.string(), "The file has no prompts.");
  refuse_equal_ids(path.filename().string(), lines);
  return std::ssize(lines);
}

}  // namespace hone::app
