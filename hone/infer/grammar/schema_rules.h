// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hone/infer/grammar/pattern/automaton.h"
#include "hone/infer/grammar/schema_value.h"

namespace hone::infer::grammar {

// Throws Error{Unsupported} that names the JSON pointer of the subschema.
[[noreturn]] void refuse_schema(std::string_view pointer, std::string_view sentence);

// At most `most` bytes of valid UTF-8, for messages.
std::string_view shorten(std::string_view text, std::size_t most = 80);

using RuleId = std::uint32_t;
inline constexpr std::uint32_t kNoLimit = 0xffffffff;

struct CountRange {
  std::uint32_t low = 0, high = kNoLimit;  // inclusive
  bool contains(std::size_t count) const { return count >= low && count <= high; }
  friend bool operator==(const CountRange&, const CountRange&) = default;
};

// Strings by their number of code points, and by patterns that all match. With patterns, each
// character has one spelling.
struct TextShape {
  CountRange count{};
  std::vector<std::shared_ptr<const Automaton>> patterns{};  // sorted
  bool contains(const std::string& text) const;
  friend bool operator==(const TextShape&, const TextShape&) = default;
};

struct ArrayShape {
  std::vector<RuleId> prefix{};
  RuleId items = 0;  // rule of the elements after the prefix
  CountRange count{};
  RuleId rule_at(std::size_t index) const { return index < prefix.size() ? prefix[index] : items; }
  friend bool operator==(const ArrayShape&, const ArrayShape&) = default;
};

struct Property {
  std::string name{};
  RuleId rule = 0;
  bool required = false;
  friend bool operator==(const Property&, const Property&) = default;
};

struct ObjectShape {
  std::vector<Property> properties{};  // in the order in which they are generated
  RuleId additional = 0;
  friend bool operator==(const ObjectShape&, const ObjectShape&) = default;
};

// A value with only one spelling.
struct Literal {
  explicit Literal(SchemaValue from)
      : value(std::move(from)), text(spell(value)), sorted(spell(value, true)) {}
  SchemaValue value;
  std::string text, sorted;  // see spell()
};

// A set of JSON values: the literals, and those of each type that is present.
struct Shape {
  // null, false, true, and the values of enum and const
  std::vector<std::shared_ptr<const Literal>> literals{};
  std::optional<NumberRange> number{};
  std::optional<TextShape> text{};
  std::optional<ArrayShape> array{};
  std::optional<ObjectShape> object{};
};

// The rules of a schema. A rule is a set of values: a union or an intersection of other rules, or a
// shape. Resolves unions and intersections into lists of shapes.
class SchemaRules {
 public:
  SchemaRules();

  RuleId anything() const { return kAnything; }
  RuleId nothing() const { return kNothing; }
  // Declares a rule, which one of the next functions defines later.
  RuleId declare(std::string pointer);
  void set_shape(RuleId rule, Shape shape);
  void set_union(RuleId rule, std::vector<RuleId> parts);
  // A union of parts of which no two have a value in common: see check_exclusive().
  void set_one_of(RuleId rule, std::vector<RuleId> parts, std::vector<std::string>* ignored);
  void set_intersection(RuleId rule, std::vector<RuleId> parts);
  // Counts towards the limit of 10,000 rules. Throws Error{Unsupported} beyond it.
  void count_rules(std::size_t more, std::string_view pointer);

  // Limits the memory of what is copied into several rules. Throws Error{Unsupported}.
  void count_bytes(std::size_t more, std::string_view pointer);

  // The shapes whose union is the rule. References remain valid. Throws Error{Unsupported} if the
  // rule is defined by itself, or if resolving it takes too many steps.
  const std::vector<std::uint32_t>& resolve(RuleId rule);
  // Checks the parts of set_one_of() of all rules that were resolved. Where they may have a value
  // in common, throws Error{Unsupported}, or adds the place to `ignored` unless it is null.
  void check_exclusive();
  // Limits the work for patterns of all rules together.
  PatternBudget& patterns() { return patterns_; }
  const Shape& shape(std::uint32_t index) const { return shapes_[index]; }
  const std::string& pointer(RuleId rule) const { return rules_[rule].pointer; }

 private:
  enum class Kind { Declared, Shape, Union, Intersection };
  struct Rule {
    std::string pointer;
    Kind kind = Kind::Declared;
    std::vector<RuleId> parts{};
    std::vector<std::string>* ignored = nullptr;
    std::vector<std::uint32_t> shapes{};
    bool resolving = false, resolved = false;
  };
  static constexpr RuleId kAnything = 0, kNothing = 1;

  void resolve_parts(RuleId rule, int depth);
  bool is_exclusive(RuleId rule);
  bool may_overlap(const Shape& a, const Shape& b, int depth);
  bool are_disjoint(RuleId a, RuleId b, int depth);
  bool arrays_are_disjoint(const ArrayShape& a, const ArrayShape& b, int depth);
  bool objects_are_disjoint(const ObjectShape& a, const ObjectShape& b, int depth);
  RuleId both(RuleId a, RuleId b);
  Shape intersect_shapes(const Shape& a, const Shape& b);
  ArrayShape intersect_arrays(const ArrayShape& a, const ArrayShape& b);
  ObjectShape intersect_objects(const ObjectShape& a, const ObjectShape& b);
  bool shape_accepts(const Shape& shape, const SchemaValue& value, int depth);
  bool accepts(RuleId rule, const SchemaValue& value, int depth);
  bool accepts_object(const ObjectShape& shape, const SchemaValue& value, int depth);
  void take_steps(std::size_t more, std::string_view pointer);

  std::deque<Rule> rules_;
  std::deque<Shape> shapes_;
  std::vector<RuleId> one_of_;  // see set_one_of()
  PatternBudget patterns_;
  std::map<std::vector<RuleId>, RuleId> intersections_;  // by their sorted parts
  std::string current_;                                  // pointer of the rule being resolved
  std::size_t counted_ = 0, bytes_ = 0, steps_ = 0;
};

}  // namespace hone::infer::grammar
