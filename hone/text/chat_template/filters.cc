// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/filters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "hone/core/check.h"
#include "hone/text/chat_template/python_text.h"
#include "hone/text/chat_template/work_limit.h"

namespace hone::text {
namespace {

using Filter = Value (*)(const Value&, const Arguments&);
using Test = bool (*)(const Value&, const Arguments&);

[[noreturn]] void fail_type(std::string_view what, const Value& value) {
  if (value.is_undefined()) {
    fail_template(concat(what, " got ", value.undefined_name(), ", which is undefined."));
  }
  fail_template(concat(what, " does not take a value of the type ", value.type_name(), "."));
}

std::int64_t integer_argument(const Arguments& arguments, std::size_t at, std::string_view name,
                              std::int64_t fallback) {
  const Value* value = find_argument(arguments, at, name);
  if (value == nullptr || value->is(ValueKind::None)) return fallback;
  if (!value->is_integer()) fail_type(name, *value);
  return value->integer();
}

bool flag_argument(const Arguments& arguments, std::size_t at, std::string_view name,
                   bool fallback = false) {
  const Value* value = find_argument(arguments, at, name);
  return value == nullptr ? fallback : value->truth();
}

std::string text_argument(const Arguments& arguments, std::size_t at, std::string_view name,
                          std::string_view fallback) {
  const Value* value = find_argument(arguments, at, name);
  return value == nullptr ? std::string(fallback) : to_str(*value).text();
}

// "a.b.0" of a value, as map and sort take it.
Value attribute_of(Value value, const Value& path) {
  if (path.is_integer()) {
    const std::int64_t at = path.integer();
    if (!value.is_sequence() || at < 0 || at >= std::ssize(value.list())) return {};
    return value.list()[static_cast<std::size_t>(at)];
  }
  const std::string spelled = to_str(path).text();
  std::string_view rest = spelled;
  while (!rest.empty()) {
    const std::size_t dot = rest.find('.');
    value = member_of(value, rest.substr(0, dot));
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  }
  return value;
}

Value text_filter(const Value& value, LetterCase letter_case) {
  return Value(change_case(to_str(value), letter_case));
}

Value filter_default(const Value& value, const Arguments& arguments) {
  const bool is_missing =
      value.is_undefined() || (flag_argument(arguments, 1, "boolean") && !value.truth());
  if (!is_missing) return value;
  const Value* fallback = find_argument(arguments, 0, "default_value");
  return fallback == nullptr ? Value("") : *fallback;
}

Value filter_join(const Value& value, const Arguments& arguments) {
  const Value* separator = find_argument(arguments, 0, "d");
  const Value* attribute = find_argument(arguments, 1, "attribute");
  const MarkedText between = separator == nullptr ? MarkedText() : to_str(*separator);
  MarkedText out;
  bool is_first = true;
  for (const Value& item : items_of(value)) {
    if (!std::exchange(is_first, false)) out.append(between);
    out.append(to_str(attribute == nullptr ? item : attribute_of(item, *attribute)));
  }
  return Value(std::move(out));
}

Value filter_replace(const Value& value, const Arguments& arguments) {
  const Value* old = find_argument(arguments, 0, "old");
  const Value* with = find_argument(arguments, 1, "new");
  if (old == nullptr || with == nullptr) fail_template("replace expects two texts.");
  return Value(replace(to_str(value), to_str(*old).text(), to_str(*with),
                       integer_argument(arguments, 2, "count", -1)));
}

Value filter_trim(const Value& value, const Arguments& arguments) {
  const Value* set = find_argument(arguments, 0, "chars");
  if (set == nullptr || set->is(ValueKind::None))
    return Value(strip(to_str(value), Side::Both, nullptr));
  const std::string characters = to_str(*set).text();
  return Value(strip(to_str(value), Side::Both, &characters));
}

Value filter_tojson(const Value& value, const Arguments& arguments) {
  JsonSpelling spelling;
  spelling.ensure_ascii = flag_argument(arguments, 0, "ensure_ascii");
  constexpr std::int64_t kMostIndent = 64;
  spelling.indent = static_cast<int>(
      std::clamp<std::int64_t>(integer_argument(arguments, 1, "indent", -1), -1, kMostIndent));
  if (spelling.indent >= 0) spelling.item_separator = std::string(",");
  const Value* separators = find_argument(arguments, 2, "separators");
  if (separators != nullptr && separators->is_sequence() && separators->list().size() == 2) {
    spelling.item_separator = to_str(separators->list()[0]).text();
    spelling.key_separator = to_str(separators->list()[1]).text();
  }
  spelling.sort_keys = flag_argument(arguments, 3, "sort_keys");
  return Value(to_json(value, spelling));
}

Value filter_indent(const Value& value, const Arguments& arguments) {
  const Value* width = find_argument(arguments, 0, "width");
  constexpr std::int64_t kMostWidth = 1024;
  const MarkedText margin =
      width != nullptr && width->is(ValueKind::Text)
          ? width->marked()
          : MarkedText(std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                       integer_argument(arguments, 0, "width", 4), 0, kMostWidth)),
                                   ' '));
  const bool blank = flag_argument(arguments, 2, "blank");
  MarkedText source = to_str(value);
  source.append("\n");
  MarkedText out;
  if (flag_argument(arguments, 1, "first")) out.append(margin);
  bool is_first = true;
  for (const Value& line : split_lines(source)) {
    if (!std::exchange(is_first, false)) {
      out.append("\n");
      if (blank || !line.text().empty()) out.append(margin);
    }
    out.append(line.marked());
  }
  return Value(std::move(out));
}

Value first_or_last(const Value& value, bool is_first) {
  const ValueList items = items_of(value);
  if (items.empty()) return Value::undefined("an item of an empty list");
  return is_first ? items.front() : items.back();
}

Value filter_reverse(const Value& value, const Arguments&) {
  ValueList items = items_of(value);
  std::ranges::reverse(items);
  if (!value.is(ValueKind::Text)) return Value(std::move(items));
  MarkedText out;
  for (const Value& item : items) out.append(item.marked());
  return Value(std::move(out));
}

Value filter_items(const Value& value, const Arguments&) {
  ValueList out;
  if (value.is_undefined()) return Value(std::move(out));
  if (!value.is(ValueKind::Dict)) fail_type("items", value);
  for (const auto& [key, item] : value.dict().entries) {
    out.emplace_back(ValueList{key, item}, true);
  }
  return Value(std::move(out));
}

// What sort, min, max and unique compare.
Value sort_key(const Value& item, const Value* attribute, bool is_case_sensitive) {
  Value key = attribute == nullptr ? item : attribute_of(item, *attribute);
  if (is_case_sensitive || !key.is(ValueKind::Text)) return key;
  return Value(change_case(key.marked(), LetterCase::Lower));
}

void sort_items(ValueList& items, const Value* attribute, bool is_case_sensitive, bool reverse) {
  std::ranges::stable_sort(items, [&](const Value& a, const Value& b) {
    const Value left = sort_key(a, attribute, is_case_sensitive);
    const Value right = sort_key(b, attribute, is_case_sensitive);
    return reverse ? is_less(right, left) : is_less(left, right);
  });
}

Value filter_sort(const Value& value, const Arguments& arguments) {
  ValueList items = items_of(value);
  sort_items(items, find_argument(arguments, 2, "attribute"),
             flag_argument(arguments, 1, "case_sensitive"), flag_argument(arguments, 0, "reverse"));
  return Value(std::move(items));
}

Value filter_dictsort(const Value& value, const Arguments& arguments) {
  ValueList items = filter_items(value, {}).list();
  const Value by(std::int64_t{text_argument(arguments, 1, "by", "key") == "value"});
  sort_items(items, &by, flag_argument(arguments, 0, "case_sensitive"),
             flag_argument(arguments, 2, "reverse"));
  return Value(std::move(items));
}

Value filter_unique(const Value& value, const Arguments& arguments) {
  const Value* attribute = find_argument(arguments, 1, "attribute");
  const bool is_case_sensitive = flag_argument(arguments, 0, "case_sensitive");
  ValueList out, keys;
  for (const Value& item : items_of(value)) {
    Value key = sort_key(item, attribute, is_case_sensitive);
    if (std::ranges::find(keys, key) != keys.end()) continue;
    keys.push_back(std::move(key));
    out.push_back(item);
  }
  return Value(std::move(out));
}

Value extreme(const Value& value, const Arguments& arguments, bool is_max) {
  const ValueList items = items_of(value);
  if (items.empty()) return Value::undefined("an item of an empty list");
  const Value* attribute = find_argument(arguments, 1, "attribute");
  const bool is_case_sensitive = flag_argument(arguments, 0, "case_sensitive");
  const Value* best = &items[0];
  for (const Value& item : items) {
    const Value a = sort_key(item, attribute, is_case_sensitive);
    const Value b = sort_key(*best, attribute, is_case_sensitive);
    if (is_max ? is_less(b, a) : is_less(a, b)) best = &item;
  }
  return *best;
}

Value filter_sum(const Value& value, const Arguments& arguments) {
  const Value* attribute = find_argument(arguments, 0, "attribute");
  bool is_whole = true;
  std::int64_t whole = 0;
  double sum = 0;
  for (const Value& item : items_of(value)) {
    const Value one = attribute == nullptr ? item : attribute_of(item, *attribute);
    if (!one.is_number()) fail_type("sum", one);
    is_whole =
        is_whole && one.is_integer() && !__builtin_add_overflow(whole, one.integer(), &whole);
    sum += one.number();
  }
  return is_whole ? Value(whole) : Value(sum);
}

Value filter_map(const Value& value, const Arguments& arguments) {
  ValueList out;
  const Value* attribute = find_argument(arguments, SIZE_MAX, "attribute");
  const Value* fallback = find_argument(arguments, SIZE_MAX, "default");
  if (attribute == nullptr && arguments.positional.empty()) {
    fail_template("map expects a filter or an attribute.");
  }
  for (const Value& item : items_of(value)) {
    if (attribute != nullptr) {
      Value found = attribute_of(item, *attribute);
      out.push_back(found.is_undefined() && fallback != nullptr ? *fallback : std::move(found));
      continue;
    }
    Arguments rest = arguments;
    const std::string name = to_str(arguments.positional[0]).text();
    rest.positional.erase(rest.positional.begin());
    out.push_back(apply_filter(name, item, rest));
  }
  return Value(std::move(out));
}

// select and reject, selectattr and rejectattr.
Value choose(const Value& value, const Arguments& arguments, bool by_attribute, bool wanted) {
  const std::size_t before = by_attribute ? 1 : 0;  // arguments before the name of the test
  if (arguments.positional.size() < before) fail_template("selectattr expects an attribute.");
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                      before + 1, rest.positional.size())));
  ValueList out;
  for (const Value& item : items_of(value)) {
    const Value subject = by_attribute ? attribute_of(item, arguments.positional[0]) : item;
    const bool holds = arguments.positional.size() <= before
                           ? subject.truth()
                           : apply_test(to_str(arguments.positional[before]).text(), subject, rest);
    if (holds == wanted) out.push_back(item);
  }
  return Value(std::move(out));
}

std::string_view stripped(const std::string& text) {
  std::string_view out = text;
  while (!out.empty() && is_python_space(static_cast<unsigned char>(out.front()))) {
    out.remove_prefix(1);
  }
  while (!out.empty() && is_python_space(static_cast<unsigned char>(out.back()))) {
    out.remove_suffix(1);
  }
  if (out.starts_with('+')) out.remove_prefix(1);
  return out;
}

Value filter_float(const Value& value, const Arguments& arguments) {
  const Value* fallback = find_argument(arguments, 0, "default");
  const Value other = fallback == nullptr ? Value(0.0) : *fallback;
  if (value.is_number()) return Value(value.number());
  if (!value.is(ValueKind::Text)) return other;
  const std::string_view text = stripped(value.text());
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? Value(number)
                                                                                   : other;
}

Value filter_int(const Value& value, const Arguments& arguments) {
  const Value* fallback = find_argument(arguments, 0, "default");
  const Value other = fallback == nullptr ? Value(std::int64_t{0}) : *fallback;
  if (value.is_integer()) return Value(value.integer());
  if (value.is(ValueKind::Text)) {
    const std::string_view text = stripped(value.text());
    std::int64_t number = 0;
    const auto base = static_cast<int>(
        std::clamp<std::int64_t>(integer_argument(arguments, 1, "base", 10), 2, 36));
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error == std::errc() && end == text.data() + text.size() && !text.empty()) {
      return Value(number);
    }
  }
  const Value number = filter_float(value, {.positional = {Value::none()}, .named = {}});
  constexpr double kMost = 9.2e18;
  const bool fits = number.is_number() && std::abs(number.number()) < kMost;
  return fits ? Value(static_cast<std::int64_t>(number.number())) : other;
}

// The number with this many digits behind the point that is nearest to the exact value.
double rounded_to(double value, std::int64_t digits) {
  std::array<char, 700> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value,
                                          std::chars_format::fixed, static_cast<int>(digits));
  double out = value;
  if (error == std::errc()) std::from_chars(text.data(), end, out);
  return out;
}

Value filter_round(const Value& value, const Arguments& arguments) {
  if (!value.is_number()) fail_type("round", value);
  const std::int64_t digits =
      std::clamp<std::int64_t>(integer_argument(arguments, 0, "precision", 0), -300, 300);
  const std::string method = text_argument(arguments, 1, "method", "common");
  if (method == "common" && value.is_integer() && digits >= 0) return Value(value.integer());
  if (method == "common" && digits >= 0) return Value(rounded_to(value.number(), digits));
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * scale;
  if (method == "ceil") return Value(std::ceil(scaled) / scale);
  if (method == "floor") return Value(std::floor(scaled) / scale);
  const double out = std::nearbyint(scaled) / scale;
  return value.is_integer() ? filter_int(Value(out), {}) : Value(out);
}

Value filter_abs(const Value& value, const Arguments&) {
  if (!value.is_number()) fail_type("abs", value);
  if (value.is_integer() && value.integer() != INT64_MIN) return Value(std::abs(value.integer()));
  return Value(std::abs(value.number()));
}

Value filter_wordcount(const Value& value, const Arguments&) {
  return Value(std::int64_t{std::ssize(split(to_str(value), nullptr, -1, false))});
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> table = {
      {"abs", filter_abs},
      {"capitalize",
       [](const Value& v, const Arguments&) { return text_filter(v, LetterCase::Capitalized); }},
      {"count", [](const Value& v, const Arguments&) { return Value(length_of(v)); }},
      {"d", filter_default},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"first", [](const Value& v, const Arguments&) { return first_or_last(v, true); }},
      {"float", filter_float},
      {"indent", filter_indent},
      {"int", filter_int},
      {"items", filter_items},
      {"join", filter_join},
      {"last", [](const Value& v, const Arguments&) { return first_or_last(v, false); }},
      {"length", [](const Value& v, const Arguments&) { return Value(length_of(v)); }},
      {"list", [](const Value& v, const Arguments&) { return Value(items_of(v)); }},
      {"lower", [](const Value& v, const Arguments&) { return text_filter(v, LetterCase::Lower); }},
      {"map", filter_map},
      {"max", [](const Value& v, const Arguments& a) { return extreme(v, a, true); }},
      {"min", [](const Value& v, const Arguments& a) { return extreme(v, a, false); }},
      {"reject", [](const Value& v, const Arguments& a) { return choose(v, a, false, false); }},
      {"rejectattr", [](const Value& v, const Arguments& a) { return choose(v, a, true, false); }},
      {"replace", filter_replace},
      {"reverse", filter_reverse},
      {"round", filter_round},
      {"safe", [](const Value& v, const Arguments&) { return Value(to_str(v)); }},
      {"select", [](const Value& v, const Arguments& a) { return choose(v, a, false, true); }},
      {"selectattr", [](const Value& v, const Arguments& a) { return choose(v, a, true, true); }},
      {"sort", filter_sort},
      {"string", [](const Value& v, const Arguments&) { return Value(to_str(v)); }},
      {"sum", filter_sum},
      {"title",
       [](const Value& v, const Arguments&) { return text_filter(v, LetterCase::TitleWords); }},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"unique", filter_unique},
      {"upper", [](const Value& v, const Arguments&) { return text_filter(v, LetterCase::Upper); }},
      {"wordcount", filter_wordcount},
  };
  return table;
}

const Value& operand(const Arguments& arguments) {
  if (arguments.positional.empty()) fail_template("A test lacks the value to compare with.");
  return arguments.positional[0];
}

std::int64_t divided(const Value& value, std::int64_t by) {
  if (!value.is_integer()) fail_type("A test of divisibility", value);
  if (by == 0) fail_template("A test divides by zero.");
  return by == -1 ? 0 : value.integer() % by;
}

bool has_only(const Value& value, LetterCase letter_case) {
  const MarkedText text = to_str(value);
  const bool has_letter = std::ranges::any_of(
      text.text(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
  return has_letter && change_case(text, letter_case).text() == text.text();
}

bool is_divisible(const Value& value, const Arguments& arguments) {
  const Value& by = operand(arguments);
  if (!by.is_integer()) fail_type("divisibleby", by);
  return divided(value, by.integer()) == 0;
}

bool is_equal(const Value& v, const Arguments& a) { return v == operand(a); }
bool is_below(const Value& v, const Arguments& a) { return is_less(v, operand(a)); }
bool is_above(const Value& v, const Arguments& a) { return is_less(operand(a), v); }
bool is_at_most(const Value& v, const Arguments& a) { return !is_less(operand(a), v); }
bool is_at_least(const Value& v, const Arguments& a) { return !is_less(v, operand(a)); }
bool differs(const Value& v, const Arguments& a) { return !(v == operand(a)); }
bool is_iterable(const Value& v, const Arguments&) {
  return v.is_sequence() || v.is(ValueKind::Text) || v.is(ValueKind::Dict) || v.is_undefined();
}

bool is_same(const Value& v, const Arguments& a) {
  return v.kind() == operand(a).kind() && v == operand(a);
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> table = {
      {"!=", differs},
      {"<", is_below},
      {"<=", is_at_most},
      {"==", is_equal},
      {">", is_above},
      {">=", is_at_least},
      {"boolean", [](const Value& v, const Arguments&) { return v.is(ValueKind::Bool); }},
      {"callable", [](const Value& v, const Arguments&) { return v.is(ValueKind::Function); }},
      {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
      {"divisibleby", is_divisible},
      {"eq", is_equal},
      {"equalto", is_equal},
      {"even", [](const Value& v, const Arguments&) { return divided(v, 2) == 0; }},
      {"false",
       [](const Value& v, const Arguments&) { return v.is(ValueKind::Bool) && !v.truth(); }},
      {"filter", [](const Value& v, const Arguments&) { return is_filter(to_str(v).text()); }},
      {"float", [](const Value& v, const Arguments&) { return v.is(ValueKind::Float); }},
      {"ge", is_at_least},
      {"greaterthan", is_above},
      {"gt", is_above},
      {"in", [](const Value& v, const Arguments& a) { return contains(operand(a), v); }},
      {"integer", [](const Value& v, const Arguments&) { return v.is(ValueKind::Int); }},
      {"iterable", is_iterable},
      {"le", is_at_most},
      {"lessthan", is_below},
      {"lower", [](const Value& v, const Arguments&) { return has_only(v, LetterCase::Lower); }},
      {"lt", is_below},
      {"mapping", [](const Value& v, const Arguments&) { return v.is(ValueKind::Dict); }},
      {"ne", differs},
      {"none", [](const Value& v, const Arguments&) { return v.is(ValueKind::None); }},
      {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
      {"odd", [](const Value& v, const Arguments&) { return divided(v, 2) != 0; }},
      {"sameas", is_same},
      {"sequence", is_iterable},
      {"string", [](const Value& v, const Arguments&) { return v.is(ValueKind::Text); }},
      {"test", [](const Value& v, const Arguments&) { return is_test(to_str(v).text()); }},
      {"true", [](const Value& v, const Arguments&) { return v.is(ValueKind::Bool) && v.truth(); }},
      {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
      {"upper", [](const Value& v, const Arguments&) { return has_only(v, LetterCase::Upper); }},
  };
  return table;
}

}  // namespace

bool is_filter(std::string_view name) { return filters().contains(name); }
bool is_test(std::string_view name) { return tests().contains(name); }

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) fail_template(concat("There is no filter \"", name, "\"."));
  return found->second(value, arguments);
}

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) fail_template(concat("There is no test \"", name, "\"."));
  return found->second(value, arguments);
}

const Value* find_argument(const Arguments& arguments, std::size_t at, std::string_view name) {
  if (at < arguments.positional.size()) return &arguments.positional[at];
  for (const auto& [key, value] : arguments.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

ValueList items_of(const Value& value) {
  if (value.is_sequence()) {
    WorkLimit::spend(value.list().size() * sizeof(Value));
    return value.list();
  }
  ValueList out;
  if (value.is(ValueKind::Dict)) {
    for (const auto& [key, item] : value.dict().entries) out.push_back(key);
  } else if (value.is(ValueKind::Text)) {
    const std::vector<std::size_t> at = characters(value.text());
    for (std::size_t i = 0; i + 1 < at.size(); ++i) {
      out.emplace_back(value.marked().substr(at[i], at[i + 1] - at[i]));
    }
  } else if (!value.is_undefined()) {
    fail_type("A loop", value);
  }
  return out;
}

Value member_of(const Value& value, std::string_view name) {
  const Value* found = nullptr;
  if (value.is(ValueKind::Dict)) found = value.dict().find(name);
  if (value.is(ValueKind::Object)) found = value.object().find(name);
  if (found != nullptr) return *found;
  return Value::undefined(concat("\"", name, "\""));
}

bool is_less(const Value& a, const Value& b) {
  WorkLimit::spend(sizeof(Value));
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is(ValueKind::Text) && b.is(ValueKind::Text))
    return a.text() < b.text();  // UTF-8 keeps the order
  if (a.is_sequence() && b.kind() == a.kind()) {
    return std::ranges::lexicographical_compare(a.list(), b.list(), is_less);
  }
  fail_template(
      concat("Values of the types ", a.type_name(), " and ", b.type_name(), " have no order."));
}

bool contains(const Value& container, const Value& item) {
  if (container.is(ValueKind::Text)) {
    if (!item.is(ValueKind::Text)) fail_type("\"in\" a text", item);
    WorkLimit::spend_on_search(container.text(), item.text());
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(ValueKind::Dict)) return container.dict().find(item) != nullptr;
  if (container.is_undefined()) return false;
  if (!container.is_sequence()) fail_type("\"in\"", container);
  return std::ranges::find(container.list(), item) != container.list().end();
}

std::int64_t length_of(const Value& value) {
  if (value.is(ValueKind::Text)) return std::ssize(characters(value.text())) - 1;
  if (value.is(ValueKind::Dict)) return std::ssize(value.dict().entries);
  if (value.is_sequence()) return std::ssize(value.list());
  if (value.is_undefined()) return 0;
  fail_type("length", value);
}

}  // namespace hone::text
