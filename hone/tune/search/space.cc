// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/search/space.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::tune {
namespace {

constexpr std::string_view kSpace = "space";
constexpr Index kMostLevels = Index{1} << 53;  // doubles hold every whole number up to here
constexpr double kLargest = 1e300;             // sums of a few such numbers are finite

[[noreturn]] void refuse(const Parameter& parameter, std::string_view problem) {
  fail_argument(kSpace, concat("Parameter ", quote_name(parameter.name), " ", problem));
}

bool is_printable(const std::string& text) { return escape_controls(text) == text; }

void check_domain(const Parameter& parameter, const Categorical& domain) {
  if (domain.choices.empty()) refuse(parameter, "has no choices.");
  for (auto choice = domain.choices.begin(); choice != domain.choices.end(); ++choice) {
    const auto* text = std::get_if<std::string>(&*choice);
    const auto* number = std::get_if<double>(&*choice);
    if (text != nullptr && !is_printable(*text)) {
      refuse(parameter, "has a choice that is not printable UTF-8.");
    }
    if (number != nullptr && !std::isfinite(*number)) {
      refuse(parameter, "has a choice that is not finite.");
    }
    if (std::find(domain.choices.begin(), choice, *choice) != choice) {
      refuse(parameter, "has the same choice twice.");
    }
  }
}

template <class Range>
void check_order(const Parameter& parameter, const Range& range) {
  if (range.low > range.high) {
    refuse(parameter, concat("starts at ", range.low, ", above its end ", range.high, "."));
  }
  if (range.log && range.low <= 0) {
    refuse(parameter, concat("is logarithmic, but starts at ", range.low, "."));
  }
}

void check_domain(const Parameter& parameter, const IntRange& range) {
  if (range.low < -kMostLevels || range.high > kMostLevels) {
    refuse(parameter, "reaches beyond 2^53.");
  }
  if (range.step <= 0) refuse(parameter, concat("has the step ", range.step, ", not above 0."));
  check_order(parameter, range);
  if ((range.high - range.low) / range.step >= kMostLevels) {
    refuse(parameter, "has more than 2^53 values.");
  }
}

void check_domain(const Parameter& parameter, const FloatRange& range) {
  const bool is_bounded = std::abs(range.low) <= kLargest && std::abs(range.high) <= kLargest;
  if (!is_bounded) refuse(parameter, "has no finite range.");  // NaN comes here, too
  if (!(range.step >= 0 && range.step <= kLargest)) {
    refuse(parameter, concat("has the step ", range.step, ", neither 0 nor positive and finite."));
  }
  check_order(parameter, range);
  if (range.step == 0) return;
  if (range.log) refuse(parameter, "has a step, but is logarithmic.");
  const double size = std::max(std::abs(range.low), std::abs(range.high));
  if (range.step <= size * 0x1p-50) refuse(parameter, "has a step below its rounding errors.");
  if ((range.high - range.low) / range.step >= static_cast<double>(kMostLevels)) {
    refuse(parameter, "has more than 2^53 values.");
  }
}

std::optional<Index> count_levels(const Categorical& domain) {
  return static_cast<Index>(domain.choices.size());
}
std::optional<Index> count_levels(const IntRange& range) {
  return (range.high - range.low) / range.step + 1;
}
std::optional<Index> count_levels(const FloatRange& range) {
  if (range.low == range.high) return 1;
  if (range.step == 0) return std::nullopt;
  return static_cast<Index>(std::floor((range.high - range.low) / range.step + 1e-9)) + 1;
}

Value value_at(const Categorical& domain, Index level) {
  return domain.choices[static_cast<std::size_t>(level)];
}
Value value_at(const IntRange& range, Index level) { return range.low + level * range.step; }
Value value_at(const FloatRange& range, Index level) {
  return std::min(range.low + static_cast<double>(level) * range.step, range.high);
}

// The value as the domain writes it; empty if it is outside.
std::optional<Value> find_value(const Categorical& domain, const Value& value) {
  const auto found = std::ranges::find(domain.choices, value);
  if (found == domain.choices.end()) return std::nullopt;
  return *found;
}
std::optional<Value> find_value(const IntRange& range, const Value& value) {
  const auto* number = std::get_if<Index>(&value);
  if (number == nullptr || *number < range.low || *number > range.high) return std::nullopt;
  if ((*number - range.low) % range.step != 0) return std::nullopt;
  return value;
}
std::optional<Value> find_value(const FloatRange& range, const Value& value) {
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr || !std::isfinite(*number)) return std::nullopt;
  const auto levels = count_levels(range);
  if (!levels) {
    const bool is_inside = *number >= range.low && *number <= range.high;
    return is_inside ? std::optional<Value>(*number + 0.0) : std::nullopt;  // -0 becomes 0
  }
  if (*levels == 1) return *number == range.low ? std::optional<Value>(range.low) : std::nullopt;
  const double level = std::round((*number - range.low) / range.step);
  if (!(level >= 0 && level < static_cast<double>(*levels))) return std::nullopt;
  const Value near = value_at(range, static_cast<Index>(level));
  if (std::abs(std::get<double>(near) - *number) > 1e-9 * range.step) return std::nullopt;
  return near;
}

Json value_json(const Value& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

std::optional<Value> value_from(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() >> 63 != 0) return std::nullopt;
  if (json.is_number_integer()) return json.get<Index>();
  if (json.is_number()) return json.get<double>();
  return std::nullopt;
}

// Takes the members of one parameter's object out of the way; what is left at the end is unknown.
class ParameterReader {
 public:
  explicit ParameterReader(const Json& json) : json_(json) {
    if (!json.is_object()) fail_corrupt(kSpace, "an object per parameter", json.type_name());
  }

  const Json& take(const char* key) {
    const auto found = json_.find(key);
    if (found == json_.end()) fail_corrupt(kSpace, concat("A parameter has no ", key, "."));
    ++taken_;
    return *found;
  }
  std::string text(const char* key) {
    const Json& json = take(key);
    if (!json.is_string()) fail_corrupt(kSpace, concat("a string as ", key), json.type_name());
    return json.get<std::string>();
  }
  bool flag(const char* key) {
    const Json& json = take(key);
    if (!json.is_boolean()) {
      fail_corrupt(kSpace, concat("true or false as ", key), json.type_name());
    }
    return json.get<bool>();
  }
  template <class Number>
  Number number(const char* key) {
    const auto value = value_from(take(key));
    if (value && std::holds_alternative<Number>(*value)) return std::get<Number>(*value);
    if constexpr (std::is_same_v<Number, double>) {
      if (value && std::holds_alternative<Index>(*value)) {
        return static_cast<double>(std::get<Index>(*value));
      }
    }
    fail_corrupt(
        kSpace, concat(std::is_same_v<Number, double> ? "a number" : "a whole number", " as ", key),
        take_text(key));
  }
  void finish() const {
    if (taken_ != json_.size()) fail_corrupt(kSpace, "A parameter has an unknown key.");
  }

 private:
  std::string take_text(const char* key) const {
    return json_[key].dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
  }

  const Json& json_;
  std::size_t taken_ = 0;
};

template <class Range, class Number>
Range read_range(ParameterReader& reader) {
  Range range;
  range.low = reader.number<Number>("low");
  range.high = reader.number<Number>("high");
  range.step = reader.number<Number>("step");
  range.log = reader.flag("log");
  return range;
}

Parameter read_parameter(const Json& json) {
  ParameterReader reader(json);
  Parameter parameter{reader.text("name"), {}};
  const std::string type = reader.text("type");
  if (type == "categorical") {
    const Json& choices = reader.take("choices");
    if (!choices.is_array()) fail_corrupt(kSpace, "a list as choices", choices.type_name());
    Categorical domain;
    for (const Json& choice : choices) {
      const auto value = value_from(choice);
      if (!value) fail_corrupt(kSpace, "A choice is no string, number, true or false.");
      domain.choices.push_back(*value);
    }
    parameter.domain = std::move(domain);
  } else if (type == "int") {
    parameter.domain = read_range<IntRange, Index>(reader);
  } else if (type == "float") {
    parameter.domain = read_range<FloatRange, double>(reader);
  } else {
    fail_corrupt(kSpace, "the type categorical, int or float", quote_name(type));
  }
  reader.finish();
  return parameter;
}

void add_domain(Json& json, const Categorical& domain) {
  json["type"] = "categorical";
  json["choices"] = Json::array();
  for (const Value& choice : domain.choices) json["choices"].push_back(value_json(choice));
}
template <class Range>
void add_domain(Json& json, const Range& range) {
  json["type"] = std::is_same_v<Range, IntRange> ? "int" : "float";
  json["low"] = range.low;
  json["high"] = range.high;
  json["step"] = range.step;
  json["log"] = range.log;
}

}  // namespace

const Value& Point::at(std::string_view name) const {
  for (const auto& [own, value] : values) {
    if (own == name) return value;
  }
  fail_argument("point", concat("There is no parameter ", quote_name(name), "."));
}

Json to_json(const Point& point) {
  Json json = Json::object();
  for (const auto& [name, value] : point.values) json[name] = value_json(value);
  return json;
}

Space::Space(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {
  HONE_REQUIRE(!parameters_.empty(), kSpace, "A space needs at least one parameter.");
  for (Parameter& parameter : parameters_) {
    HONE_REQUIRE(!parameter.name.empty(), kSpace, "A parameter has no name.");
    if (!is_printable(parameter.name)) refuse(parameter, "has a name that is no printable UTF-8.");
    if (auto* range = std::get_if<FloatRange>(&parameter.domain)) {
      range->low += 0.0;  // -0 becomes 0, which is written in one way only
      range->high += 0.0;
    }
    std::visit([&](const auto& domain) { check_domain(parameter, domain); }, parameter.domain);
  }
  const Index twin =
      find_duplicate(static_cast<Index>(size()), [this](Index i) -> std::string_view {
        return parameters_[static_cast<std::size_t>(i)].name;
      });
  if (twin >= 0) refuse(parameters_[static_cast<std::size_t>(twin)], "occurs twice.");
}

Space Space::from_json(const Json& json) {
  if (!json.is_array()) fail_corrupt(kSpace, "a list of parameters", json.type_name());
  std::vector<Parameter> parameters;
  for (const Json& parameter : json) parameters.push_back(read_parameter(parameter));
  try {
    return Space(std::move(parameters));
  } catch (const Error& error) {
    throw Error(ErrorCategory::CorruptFile, error.what());
  }
}

std::optional<Index> Space::levels(std::size_t parameter) const {
  return std::visit([](const auto& domain) { return count_levels(domain); },
                    parameters_[parameter].domain);
}

std::optional<Index> Space::count() const {
  Index count = 1;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto own = levels(i);
    if (!own || __builtin_mul_overflow(count, *own, &count) || count > kMostLevels) {
      return std::nullopt;
    }
  }
  return count;
}

Value Space::value(std::size_t parameter, Index level) const {
  return std::visit([level](const auto& domain) { return value_at(domain, level); },
                    parameters_[parameter].domain);
}

Point Space::point(Index position) const {
  const auto all = count();
  HONE_REQUIRE(all.has_value(), kSpace, "The points of this space cannot be counted.");
  HONE_CHECK(position >= 0 && position < *all, kSpace, concat("a position below ", *all), position);
  Point point;
  point.values.resize(size());
  for (std::size_t i = size(); i-- > 0;) {
    const Index own = *levels(i);
    point.values[i] = {parameters_[i].name, value(i, position % own)};
    position /= own;
  }
  return point;
}

Point Space::normalize(const Point& point) const {
  HONE_CHECK(point.values.size() == size(), kSpace, concat("a point of ", size(), " values"),
             point.values.size());
  Point normal;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto& [name, value] = point.values[i];
    HONE_CHECK(name == parameters_[i].name, kSpace,
               concat("a value for ", quote_name(parameters_[i].name)), quote_name(name));
    const auto find = [&own = value](const auto& domain) { return find_value(domain, own); };
    auto found = std::visit(find, parameters_[i].domain);
    if (!found) refuse(parameters_[i], "of the point has a value outside its range.");
    normal.values.emplace_back(name, *std::move(found));
  }
  return normal;
}

Point Space::read_point(const Json& json) const {
  if (!json.is_object()) fail_corrupt(kSpace, "an object as point", json.type_name());
  Point point;
  for (const auto& [name, field] : json.items()) {
    auto value = value_from(field);
    if (!value) {
      fail_corrupt(kSpace, concat("Parameter ", quote_name(name), " has no valid value."));
    }
    const std::size_t i = point.values.size();
    const bool is_float = i < size() && std::holds_alternative<FloatRange>(parameters_[i].domain);
    if (is_float && std::holds_alternative<Index>(*value)) {
      value = static_cast<double>(std::get<Index>(*value));
    }
    point.values.emplace_back(name, *std::move(value));
  }
  try {
    return normalize(point);
  } catch (const Error& error) {
    throw Error(ErrorCategory::CorruptFile, error.what());
  }
}

Json to_json(const Space& space) {
  Json json = Json::array();
  for (const Parameter& parameter : space.parameters()) {
    Json& own = json.emplace_back(Json::object());
    own["name"] = parameter.name;
    std::visit([&own](const auto& domain) { add_domain(own, domain); }, parameter.domain);
  }
  return json;
}

}  // namespace hone::tune
