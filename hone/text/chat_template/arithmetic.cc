// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/arithmetic.h"

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/text/chat_template/filters.h"
#include "hone/text/chat_template/python_text.h"

namespace hone::text {
namespace {

[[noreturn]] void fail_operands(std::string_view name, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) fail_template(concat(value->undefined_name(), " is undefined."));
  }
  fail_template(concat("\"", name, "\" does not take values of the types ", left.type_name(),
                       " and ", right.type_name(), "."));
}

void check_size(std::size_t size, std::size_t most) {
  if (size > most) fail(ErrorCategory::Resource, "chat template", "A value is too long.");
}

Value joined(const MarkedText& left, const MarkedText& right, std::size_t most) {
  check_size(left.size() + right.size(), most);
  MarkedText out;
  out.append(left);
  out.append(right);
  return Value(std::move(out));
}

Value joined(const Value& left, const Value& right, std::size_t most) {
  check_size(left.list().size() + right.list().size(), most);
  ValueList out = left.list();
  out.insert(out.end(), right.list().begin(), right.list().end());
  return Value(std::move(out), left.is(ValueKind::Tuple));
}

Value repeated(const Value& value, std::int64_t times, std::size_t most) {
  const std::size_t size = value.is(ValueKind::Text) ? value.text().size() : value.list().size();
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(0, times));
  check_size(size == 0 || count <= most / size ? 0 : most + 1, most);
  MarkedText text;
  ValueList list;
  for (std::size_t i = 0; i < count && size > 0; ++i) {
    if (value.is(ValueKind::Text)) {
      text.append(value.marked());
    } else {
      list.insert(list.end(), value.list().begin(), value.list().end());
    }
  }
  return value.is(ValueKind::Text) ? Value(std::move(text))
                                   : Value(std::move(list), value.is(ValueKind::Tuple));
}

// Python rounds quotients down.
std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::optional<std::int64_t> power(std::int64_t base, std::int64_t exponent) {
  std::int64_t out = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(out, base, &out)) return std::nullopt;
  }
  return out;
}

std::optional<std::int64_t> on_integers(std::string_view name, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (name == "+") return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (name == "-") return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (name == "*") return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (name == "**") return power(a, b);
  if (b == -1) return name == "//" ? on_integers("-", 0, a) : std::optional<std::int64_t>(0);
  return name == "//" ? floor_div(a, b) : a - b * floor_div(a, b);
}

Value on_numbers(std::string_view name, const Value& left, const Value& right) {
  const bool divides = name == "/" || name == "//" || name == "%";
  if (divides && right.number() == 0) fail_template("A number is divided by zero.");
  const bool is_power = name == "**" && right.number() < 0;
  if (is_power && left.number() == 0) fail_template("A number is divided by zero.");
  if (left.is_integer() && right.is_integer() && name != "/" && !is_power) {
    const auto out = on_integers(name, left.integer(), right.integer());
    if (!out) fail_template("A number is too large.");
    return Value(*out);
  }
  const double a = left.number(), b = right.number();
  if (name == "+") return Value(a + b);
  if (name == "-") return Value(a - b);
  if (name == "*") return Value(a * b);
  if (name == "/") return Value(a / b);
  if (name == "**") return Value(std::pow(a, b));
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return Value(name == "//" ? std::round((a - rest) / b) : rest);
}

}  // namespace

Value arithmetic(std::string_view name, const Value& left, const Value& right,
                 std::size_t most_bytes) {
  if (name == "~") return joined(to_str(left), to_str(right), most_bytes);
  if (left.is_number() && right.is_number()) return on_numbers(name, left, right);
  if (name == "+" && left.is(ValueKind::Text) && right.is(ValueKind::Text)) {
    return joined(left.marked(), right.marked(), most_bytes);
  }
  if (name == "+" && left.is_sequence() && left.kind() == right.kind()) {
    return joined(left, right, most_bytes);
  }
  const auto repeats = [](const Value& value) {
    return value.is(ValueKind::Text) || value.is_sequence();
  };
  if (name == "*" && repeats(left) && right.is_integer()) {
    return repeated(left, right.integer(), most_bytes);
  }
  if (name == "*" && repeats(right) && left.is_integer()) {
    return repeated(right, left.integer(), most_bytes);
  }
  fail_operands(name, left, right);
}

Value negative(const Value& value) {
  if (!value.is_number()) fail_template("\"-\" does not take this value.");
  if (value.is(ValueKind::Float)) return Value(-value.number());
  return on_numbers("-", Value(std::int64_t{0}), value);
}

Value slice_of(const Value& value, const std::array<std::optional<std::int64_t>, 3>& parts) {
  if (value.is_undefined()) fail_template(concat(value.undefined_name(), " is undefined."));
  if (!value.is_sequence() && !value.is(ValueKind::Text)) {
    fail_template(concat("A value of the type ", value.type_name(), " has no slices."));
  }
  const bool is_text = value.is(ValueKind::Text);
  const std::vector<std::size_t> at =
      is_text ? characters(value.text()) : std::vector<std::size_t>();
  const std::int64_t size = is_text ? std::ssize(at) - 1 : std::ssize(value.list());
  const std::int64_t step = parts[2].value_or(1);
  if (step == 0) fail_template("A slice has the step 0.");
  const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto place = [&](std::optional<std::int64_t> part, std::int64_t fallback) {
    if (!part) return fallback;
    return std::clamp(*part < 0 ? *part + size : *part, lowest, highest);
  };
  const std::int64_t begin = place(parts[0], step > 0 ? lowest : highest);
  const std::int64_t end = place(parts[1], step > 0 ? highest : lowest);
  ValueList items;
  MarkedText text;
  const std::int64_t stride = std::clamp(step, -size - 1, size + 1);
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += stride) {
    const auto place_of_item = static_cast<std::size_t>(i);
    if (is_text) {
      const std::size_t first = at[place_of_item];
      text.append(value.marked().substr(first, at[place_of_item + 1] - first));
    } else {
      items.push_back(value.list()[place_of_item]);
    }
  }
  return is_text ? Value(std::move(text)) : Value(std::move(items), value.is(ValueKind::Tuple));
}

}  // namespace hone::text
