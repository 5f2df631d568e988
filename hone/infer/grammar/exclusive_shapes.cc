// SPDX-License-Identifier: Apache-2.0
// Whether alternatives have values in common: for "oneOf", which demands that they have none.
#include <algorithm>
#include <unordered_map>

#include "hone/core/check.h"
#include "hone/infer/grammar/schema_rules.h"

namespace hone::infer::grammar {
namespace {

constexpr int kMaxLevels = 8;  // of values within values that are compared

bool is_possible(const NumberRange& range) {
  return magnitudes(range, false).possible || magnitudes(range, true).possible;
}

bool is_possible(const CountRange& a, const CountRange& b) {
  return std::max(a.low, b.low) <= std::min(a.high, b.high);
}

}  // namespace

void SchemaRules::check_exclusive() {
  for (const RuleId rule : one_of_) {
    if (!rules_[rule].resolved || is_exclusive(rule)) continue;
    if (rules_[rule].ignored == nullptr) {
      refuse_schema(rules_[rule].pointer,
                    "The keyword \"oneOf\" has alternatives that may have values in common;"
                    " \"anyOf\" is enforced.");
    }
    rules_[rule].ignored->push_back(concat(rules_[rule].pointer, "/oneOf"));
  }
}

bool SchemaRules::is_exclusive(RuleId rule) {
  const std::vector<RuleId> parts = rules_[rule].parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t k = i + 1; k < parts.size(); ++k) {
      take_steps(1, rules_[rule].pointer);
      if (!are_disjoint(parts[i], parts[k], 0)) return false;
    }
  }
  return true;
}

bool SchemaRules::may_overlap(const Shape& a, const Shape& b, int depth) {
  take_steps(1 + a.literals.size() * b.literals.size() / 16, current_);
  for (const auto& literal : a.literals) {
    const bool is_in_both =
        std::ranges::any_of(b.literals,
                            [&](const auto& other) { return other->sorted == literal->sorted; }) ||
        shape_accepts(b, literal->value, depth);
    if (is_in_both) return true;
  }
  for (const auto& literal : b.literals) {
    if (shape_accepts(a, literal->value, depth)) return true;
  }
  if (a.number && b.number && is_possible(intersect(*a.number, *b.number))) return true;
  if (a.text && b.text && is_possible(a.text->count, b.text->count)) return true;
  if (a.array && b.array && !arrays_are_disjoint(*a.array, *b.array, depth)) return true;
  return a.object && b.object && !objects_are_disjoint(*a.object, *b.object, depth);
}

bool SchemaRules::are_disjoint(RuleId a, RuleId b, int depth) {
  if (a == kNothing || b == kNothing) return true;
  if (a == b || a == kAnything || b == kAnything || depth >= kMaxLevels) return false;
  resolve_parts(a, 0);
  resolve_parts(b, 0);
  const std::vector<std::uint32_t> of_a = rules_[a].shapes, of_b = rules_[b].shapes;
  return std::ranges::none_of(of_a, [&](std::uint32_t i) {
    return std::ranges::any_of(of_b, [&](std::uint32_t j) {
      return i == j || may_overlap(shapes_[i], shapes_[j], depth + 1);
    });
  });
}

bool SchemaRules::arrays_are_disjoint(const ArrayShape& a, const ArrayShape& b, int depth) {
  if (!is_possible(a.count, b.count)) return true;
  constexpr std::uint32_t kMostElements = 16;
  const std::uint32_t sure = std::min(std::max(a.count.low, b.count.low), kMostElements);
  for (std::uint32_t i = 0; i < sure; ++i) {
    if (are_disjoint(a.rule_at(i), b.rule_at(i), depth)) return true;
  }
  return false;
}

// Objects differ if a property that one of them requires has no value that both allow.
bool SchemaRules::objects_are_disjoint(const ObjectShape& a, const ObjectShape& b, int depth) {
  const auto differ = [&](const ObjectShape& requires_it, const ObjectShape& other) {
    return std::ranges::any_of(requires_it.properties, [&](const Property& property) {
      if (!property.required) return false;
      const auto found = std::ranges::find(other.properties, property.name, &Property::name);
      const RuleId rule = found == other.properties.end() ? other.additional : found->rule;
      return are_disjoint(property.rule, rule, depth);
    });
  };
  return differ(a, b) || differ(b, a);
}

}  // namespace hone::infer::grammar
