// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::tune {

using Value = std::variant<bool, Index, double, std::string>;

struct Categorical {
  std::vector<Value> choices;
};
// low, low + step, … up to high. `log` makes equal ratios equally likely, not equal differences.
struct IntRange {
  Index low = 0, high = 0, step = 1;
  bool log = false;
};
// The same for floating point; every number in [low, high] if step is 0.
struct FloatRange {
  double low = 0, high = 0, step = 0;
  bool log = false;
};

struct Parameter {
  std::string name;
  std::variant<Categorical, IntRange, FloatRange> domain;
};

// One value for each parameter of a space, in its order.
struct Point {
  std::vector<std::pair<std::string, Value>> values;

  // Throws Error{InvalidArgument} if there is no such name.
  const Value& at(std::string_view name) const;
  bool operator==(const Point&) const = default;
};

Json to_json(const Point& point);  // {"name": value, …}

// What a search may choose from.
class Space {
 public:
  // Throws Error{InvalidArgument} with one sentence if there is no parameter, if a name or a choice
  // is empty, occurs twice or is not printable UTF-8, or if a range is not finite, is empty, has no
  // positive step, is logarithmic from 0 or below, or has more than 2^53 values.
  explicit Space(std::vector<Parameter> parameters);
  // Reads what to_json() writes. Everything else throws Error{CorruptFile}.
  static Space from_json(const Json& json);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::size_t size() const { return parameters_.size(); }
  // The number of values of a parameter; empty for an interval.
  std::optional<Index> levels(std::size_t parameter) const;
  // The number of points; empty if a parameter is an interval or there are more than 2^53.
  std::optional<Index> count() const;

  // The value at a position in [0, levels) of a parameter that is no interval.
  Value value(std::size_t parameter, Index level) const;
  // The point at a position in [0, count), in Cartesian order: the last parameter changes fastest.
  // Throws Error{InvalidArgument} if there is no such position.
  Point point(Index position) const;

  // The point with its numbers as this space writes them: a float within 1e-9 steps of a value of
  // its range becomes that value. Throws Error{InvalidArgument} that names the parameter unless the
  // point has all parameters of this space, in order, and no value outside its range.
  Point normalize(const Point& point) const;
  // The same for a JSON object. Throws Error{CorruptFile}.
  Point read_point(const Json& json) const;

 private:
  std::vector<Parameter> parameters_;
};

// [{"name": …, "type": "categorical", "choices": […]}, {"name": …, "type": "int" or "float",
// "low": …, "high": …, "step": …, "log": …}, …]
Json to_json(const Space& space);

}  // namespace hone::tune
