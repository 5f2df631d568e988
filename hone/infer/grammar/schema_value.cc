// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/schema_value.h"

#include <algorithm>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"

namespace hone::infer::grammar {
namespace {

constexpr std::string_view kWhere = "JSON schema";
constexpr std::size_t kMaxBytes = 256 << 10, kMaxNesting = 96;

class SchemaTextReader final : public nlohmann::json_sax<Json> {
 public:
  explicit SchemaTextReader(std::string label) : label_(std::move(label)) {}
  SchemaValue take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool null() override { return put({}); }
  bool boolean(bool value) override {
    return put({.kind = SchemaValue::Kind::Bool, .boolean = value});
  }
  bool number_integer(number_integer_t value) override { return number(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return number(text); }
  bool string(string_t& value) override {
    return put({.kind = SchemaValue::Kind::String, .text = std::move(value)});
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(SchemaValue::Kind::Object); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(SchemaValue::Kind::Array); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (!open_.back().keys.insert(value).second) {
      fail_corrupt(kWhere,
                   concat(label_, "The JSON key \"", value.substr(0, 80), "\" occurs twice."));
    }
    key_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    problem_ = error.what();
    return false;
  }

 private:
  struct Level {
    SchemaValue* value;
    std::unordered_set<std::string> keys;
  };

  // Pointers to open values stay valid: a parent does not grow while a child is open.
  SchemaValue& append(SchemaValue value) {
    if (open_.empty()) return root_ = std::move(value);
    SchemaValue& parent = *open_.back().value;
    if (parent.kind == SchemaValue::Kind::Array) {
      return parent.elements.emplace_back(std::move(value));
    }
    return parent.members.emplace_back(std::move(key_), std::move(value)).second;
  }
  bool put(SchemaValue value) {
    append(std::move(value));
    return true;
  }
  bool number(std::string_view text) {
    return put({.kind = SchemaValue::Kind::Number, .number = parse_decimal(text)});
  }
  bool open(SchemaValue::Kind kind) {
    if (open_.size() >= kMaxNesting) {
      fail_unsupported(kWhere,
                       concat("The text is nested more than ", kMaxNesting, " levels deep."));
    }
    open_.push_back({&append({.kind = kind}), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  SchemaValue root_;
  const std::string label_;
  std::string key_, problem_;
  std::vector<Level> open_;
};

}  // namespace

const SchemaValue* SchemaValue::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string spell_string(std::string_view text) { return Json(std::string(text)).dump(); }

// The recursion is as deep as the value, of which parse_schema_text() limits the nesting.
std::string spell(const SchemaValue& value, bool sort_keys) {
  std::string text;
  switch (value.kind) {
    case SchemaValue::Kind::Null:
      return "null";
    case SchemaValue::Kind::Bool:
      return value.boolean ? "true" : "false";
    case SchemaValue::Kind::Number:
      return spell(value.number);
    case SchemaValue::Kind::String:
      return spell_string(value.text);
    case SchemaValue::Kind::Array:
      for (const SchemaValue& element : value.elements) {
        if (!text.empty()) text += ',';
        text += spell(element, sort_keys);
      }
      return "[" + text + "]";
    case SchemaValue::Kind::Object:
      break;
  }
  std::vector<const std::pair<std::string, SchemaValue>*> members;
  for (const auto& member : value.members) members.push_back(&member);
  if (sort_keys)
    std::ranges::sort(
        members, {}, [](auto m) -> const auto& { return m->first; });
  for (const auto* member : members) {
    if (!text.empty()) text += ',';
    text += spell_string(member->first) + ":" + spell(member->second, sort_keys);
  }
  return "{" + text + "}";
}

SchemaValue parse_schema_text(std::string_view text, std::string_view label) {
  const std::string name = concat(label, label.empty() ? "" : ": ");
  if (text.size() > kMaxBytes) {
    fail_unsupported(kWhere, concat(name, "at most ", kMaxBytes, " bytes"), concat(text.size()));
  }
  // The parser would take a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    fail_corrupt(kWhere, concat(name, "The text has a NUL byte."));
  }
  SchemaTextReader reader(name);
  if (Json::sax_parse(text.begin(), text.end(), &reader)) return reader.take();
  std::string reason = reader.problem();
  const auto bracket = reason.find("] ");
  if (bracket != std::string::npos) reason = reason.substr(bracket + 2);
  fail_corrupt(kWhere, concat(name, "This is not valid JSON: ", reason.substr(0, 200)));
}

}  // namespace hone::infer::grammar
