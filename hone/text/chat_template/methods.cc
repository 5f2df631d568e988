// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/methods.h"

#include <algorithm>
#include <map>

#include "hone/core/check.h"
#include "hone/text/chat_template/filters.h"
#include "hone/text/chat_template/python_text.h"
#include "hone/text/chat_template/work_limit.h"
#include "hone/text/unicode/utf8.h"

namespace hone::text {
namespace {

using Method = Value (*)(const Value&, const Arguments&);
using Methods = std::map<std::string_view, Method>;

const std::string& text_of(const Arguments& arguments, std::size_t at, std::string_view name) {
  const Value* value = find_argument(arguments, at, name);
  if (value == nullptr || !value->is(ValueKind::Text)) {
    fail_template(concat("A method of a text expects a text as ", name, "."));
  }
  return value->text();
}

const std::string* set_of(const Arguments& arguments, std::string_view name) {
  const Value* value = find_argument(arguments, 0, name);
  if (value == nullptr || value->is(ValueKind::None)) return nullptr;
  return &text_of(arguments, 0, name);
}

std::int64_t count_of(const Arguments& arguments, std::size_t at, std::string_view name) {
  const Value* value = find_argument(arguments, at, name);
  if (value == nullptr) return -1;
  if (!value->is_integer()) fail_template(concat("A method expects a number as ", name, "."));
  return value->integer();
}

template <Side side>
Value strip_method(const Value& value, const Arguments& arguments) {
  return Value(strip(value.marked(), side, set_of(arguments, "chars")));
}

template <bool from_right>
Value split_method(const Value& value, const Arguments& arguments) {
  return Value(split(value.marked(), set_of(arguments, "sep"), count_of(arguments, 1, "maxsplit"),
                     from_right));
}

template <LetterCase letter_case>
Value case_method(const Value& value, const Arguments&) {
  return Value(change_case(value.marked(), letter_case));
}

// Whether the text begins, or ends, with the argument or one of a tuple.
template <bool at_begin>
Value affix_method(const Value& value, const Arguments& arguments) {
  const Value* affix = find_argument(arguments, 0, "prefix");
  const ValueList choices = affix != nullptr && affix->is_sequence()
                                ? affix->list()
                                : ValueList{Value(text_of(arguments, 0, "prefix"))};
  return Value(std::ranges::any_of(choices, [&](const Value& choice) {
    if (!choice.is(ValueKind::Text)) return false;
    return at_begin ? value.text().starts_with(choice.text())
                    : value.text().ends_with(choice.text());
  }));
}

Value remove_prefix(const Value& value, const Arguments& arguments) {
  const std::string& prefix = text_of(arguments, 0, "prefix");
  const bool has = value.text().starts_with(prefix);
  return Value(value.marked().substr(has ? prefix.size() : 0));
}

Value remove_suffix(const Value& value, const Arguments& arguments) {
  const std::string& suffix = text_of(arguments, 0, "suffix");
  const bool has = value.text().ends_with(suffix);
  return Value(value.marked().substr(0, value.marked().size() - (has ? suffix.size() : 0)));
}

Value replace_method(const Value& value, const Arguments& arguments) {
  const Value* with = find_argument(arguments, 1, "new");
  if (with == nullptr || !with->is(ValueKind::Text)) fail_template("replace() expects two texts.");
  return Value(replace(value.marked(), text_of(arguments, 0, "old"), with->marked(),
                       count_of(arguments, 2, "count")));
}

// The position in characters, or -1.
template <bool from_right>
std::int64_t find_in(const Value& value, const Arguments& arguments) {
  const std::string& text = value.text();
  const std::string& part = text_of(arguments, 0, "sub");
  WorkLimit::spend_on_search(text, part);
  const std::size_t at = from_right ? text.rfind(part) : text.find(part);
  if (at == std::string::npos) return -1;
  return std::ssize(characters(std::string_view(text).substr(0, at))) - 1;
}

template <bool from_right>
Value find_method(const Value& value, const Arguments& arguments) {
  return Value(find_in<from_right>(value, arguments));
}

Value index_method(const Value& value, const Arguments& arguments) {
  const std::int64_t at = find_in<false>(value, arguments);
  if (at < 0) fail_template("index() has not found the text.");
  return Value(at);
}

Value count_method(const Value& value, const Arguments& arguments) {
  const std::string& part = text_of(arguments, 0, "sub");
  if (part.empty()) return Value(length_of(value) + 1);
  return Value(std::ssize(split(value.marked(), &part, -1, false)) - 1);
}

Value join_method(const Value& value, const Arguments& arguments) {
  if (arguments.positional.size() != 1) fail_template("join() expects a list.");
  MarkedText out;
  bool is_first = true;
  for (const Value& item : items_of(arguments.positional[0])) {
    if (!item.is(ValueKind::Text)) fail_template("join() expects a list of texts.");
    if (!std::exchange(is_first, false)) out.append(value.marked());
    out.append(item.marked());
  }
  return Value(std::move(out));
}

template <bool (*holds)(char32_t)>
Value every_character(const Value& value, const Arguments&) {
  const std::string_view text = value.text();
  const std::vector<std::size_t> at = characters(text);
  bool all = !text.empty();
  for (std::size_t i = 0; all && i + 1 < at.size(); ++i) {
    all = holds(decode_utf8(text.substr(at[i])).value);
  }
  return Value(all);
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_letter(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= 0xC0 && !is_white_space(c));
}
bool is_letter_or_digit(char32_t c) { return is_letter(c) || is_digit(c); }

const Methods& text_methods() {
  static const Methods table = {
      {"capitalize", case_method<LetterCase::Capitalized>},
      {"count", count_method},
      {"endswith", affix_method<false>},
      {"find", find_method<false>},
      {"index", index_method},
      {"isalnum", every_character<is_letter_or_digit>},
      {"isalpha", every_character<is_letter>},
      {"isdigit", every_character<is_digit>},
      {"isspace", every_character<is_python_space>},
      {"join", join_method},
      {"lower", case_method<LetterCase::Lower>},
      {"lstrip", strip_method<Side::Left>},
      {"removeprefix", remove_prefix},
      {"removesuffix", remove_suffix},
      {"replace", replace_method},
      {"rfind", find_method<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<Side::Right>},
      {"split", split_method<false>},
      {"splitlines",
       [](const Value& v, const Arguments&) { return Value(split_lines(v.marked())); }},
      {"startswith", affix_method<true>},
      {"strip", strip_method<Side::Both>},
      {"title", case_method<LetterCase::Title>},
      {"upper", case_method<LetterCase::Upper>},
  };
  return table;
}

Value dict_get(const Value& value, const Arguments& arguments) {
  const Value* key = find_argument(arguments, 0, "key");
  if (key == nullptr) fail_template("get() expects a key.");
  if (const Value* found = value.dict().find(*key)) return *found;
  const Value* fallback = find_argument(arguments, 1, "default");
  return fallback == nullptr ? Value::none() : *fallback;
}

Value dict_values(const Value& value, const Arguments&) {
  ValueList out;
  for (const auto& [key, item] : value.dict().entries) out.push_back(item);
  return Value(std::move(out));
}

const Methods& dict_methods() {
  static const Methods table = {
      {"copy", [](const Value& v, const Arguments&) { return v; }},
      {"get", dict_get},
      {"items", [](const Value& v, const Arguments& a) { return apply_filter("items", v, a); }},
      {"keys", [](const Value& v, const Arguments&) { return Value(items_of(v)); }},
      {"values", dict_values},
  };
  return table;
}

Value list_index(const Value& value, const Arguments& arguments) {
  if (arguments.positional.empty()) fail_template("index() expects a value.");
  const ValueList& items = value.list();
  const auto found = std::ranges::find(items, arguments.positional[0]);
  if (found == items.end()) fail_template("index() has not found the value.");
  return Value(std::int64_t{found - items.begin()});
}

Value list_count(const Value& value, const Arguments& arguments) {
  if (arguments.positional.empty()) fail_template("count() expects a value.");
  return Value(std::int64_t{std::ranges::count(value.list(), arguments.positional[0])});
}

const Methods& list_methods() {
  static const Methods table = {
      {"copy", [](const Value& v, const Arguments&) { return v; }},
      {"count", list_count},
      {"index", list_index},
  };
  return table;
}

}  // namespace

std::optional<Value> method_of(const Value& value, std::string_view name) {
  const Methods* methods = nullptr;
  if (value.is(ValueKind::Text)) methods = &text_methods();
  if (value.is(ValueKind::Dict)) methods = &dict_methods();
  if (value.is_sequence()) methods = &list_methods();
  if (methods == nullptr) return std::nullopt;
  const auto found = methods->find(name);
  if (found == methods->end()) return std::nullopt;
  const Method method = found->second;
  return Value(ValueFunction{
      .name = std::string(name),
      .call = [value, method](const Arguments& arguments) { return method(value, arguments); },
      .depth = value.depth()});
}

}  // namespace hone::text
