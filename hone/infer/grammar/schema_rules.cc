// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/schema_rules.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"

namespace hone::infer::grammar {
namespace {

constexpr std::size_t kMaxRules = 10'000, kMaxSteps = 2'000'000, kMaxBytesCopied = 1 << 20;
constexpr int kMaxChain = 64;  // of references and alternatives that do not enter a value

Shape shape_of_anything(RuleId anything) {
  Shape shape;
  shape.literals.push_back(std::make_shared<Literal>(SchemaValue{}));
  for (const bool value : {false, true}) {
    shape.literals.push_back(
        std::make_shared<Literal>(SchemaValue{.kind = SchemaValue::Kind::Bool, .boolean = value}));
  }
  shape.number = NumberRange{};
  shape.text = TextShape{};
  shape.array = ArrayShape{.items = anything};
  shape.object = ObjectShape{.additional = anything};
  return shape;
}

CountRange intersect_counts(const CountRange& a, const CountRange& b) {
  return {std::max(a.low, b.low), std::min(a.high, b.high)};
}

TextShape intersect_texts(const TextShape& a, const TextShape& b) {
  TextShape result{.count = intersect_counts(a.count, b.count), .patterns = a.patterns};
  result.patterns.insert(result.patterns.end(), b.patterns.begin(), b.patterns.end());
  std::ranges::sort(result.patterns);
  result.patterns.erase(std::unique(result.patterns.begin(), result.patterns.end()),
                        result.patterns.end());
  return result;
}

bool is_empty(const Shape& shape) {
  return shape.literals.empty() && !shape.number && !shape.text && !shape.array && !shape.object;
}

// Code points of valid UTF-8.
std::size_t code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

bool TextShape::contains(const std::string& text) const {
  if (!count.contains(code_points(text))) return false;
  if (patterns.empty()) return true;
  const std::string spelled = spell_string(text);
  return std::ranges::all_of(patterns, [&](const std::shared_ptr<const Automaton>& pattern) {
    return pattern->matches(std::string_view(spelled).substr(1, spelled.size() - 2));
  });
}

void refuse_schema(std::string_view pointer, std::string_view sentence) {
  // The end of a long pointer says most. Its segments are shorter than this.
  constexpr std::size_t kShown = 400;
  if (pointer.size() > kShown) {
    const std::size_t slash = pointer.find('/', pointer.size() - kShown);
    pointer = slash == pointer.npos ? shorten(pointer, kShown) : pointer.substr(slash);
  }
  fail_unsupported("JSON schema",
                   concat("At ", pointer.empty() ? "the root" : pointer, ": ", sentence));
}

std::string_view shorten(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (text[most] & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

SchemaRules::SchemaRules() {
  declare("");
  declare("");
  set_shape(kAnything, shape_of_anything(kAnything));
  set_union(kNothing, {});
}

RuleId SchemaRules::declare(std::string pointer) {
  count_rules(1, pointer);
  rules_.push_back({std::move(pointer)});
  return static_cast<RuleId>(rules_.size() - 1);
}

void SchemaRules::count_rules(std::size_t more, std::string_view pointer) {
  counted_ += more;
  if (counted_ > kMaxRules) {
    refuse_schema(pointer, concat("The schema has more than ", kMaxRules,
                                  " subschemas, properties and literals."));
  }
}

void SchemaRules::set_shape(RuleId rule, Shape shape) {
  rules_[rule].kind = Kind::Shape;
  rules_[rule].shapes = {static_cast<std::uint32_t>(shapes_.size())};
  rules_[rule].resolved = true;
  shapes_.push_back(std::move(shape));
}

void SchemaRules::set_union(RuleId rule, std::vector<RuleId> parts) {
  rules_[rule].kind = Kind::Union;
  rules_[rule].parts = std::move(parts);
}

void SchemaRules::set_one_of(RuleId rule, std::vector<RuleId> parts,
                             std::vector<std::string>* ignored) {
  set_union(rule, std::move(parts));
  rules_[rule].ignored = ignored;
  one_of_.push_back(rule);
}

void SchemaRules::set_intersection(RuleId rule, std::vector<RuleId> parts) {
  rules_[rule].kind = Kind::Intersection;
  rules_[rule].parts = std::move(parts);
}

const std::vector<std::uint32_t>& SchemaRules::resolve(RuleId rule) {
  resolve_parts(rule, 0);
  return rules_[rule].shapes;
}

void SchemaRules::count_bytes(std::size_t more, std::string_view pointer) {
  bytes_ += more;
  if (bytes_ > kMaxBytesCopied) {
    refuse_schema(pointer,
                  "The names and literals of all alternatives together take too much"
                  " memory.");
  }
}

void SchemaRules::take_steps(std::size_t more, std::string_view pointer) {
  steps_ += more;
  if (steps_ > kMaxSteps) {
    refuse_schema(pointer, "Combining the alternatives of this schema takes too many steps.");
  }
}

void SchemaRules::resolve_parts(RuleId rule, int depth) {
  if (rules_[rule].resolved) return;
  const std::string pointer = rules_[rule].pointer;
  if (rules_[rule].resolving) refuse_schema(pointer, "The schema is defined by itself.");
  if (depth > kMaxChain) {
    refuse_schema(pointer, concat("More than ", kMaxChain, " references or alternatives follow",
                                  " each other without entering a value."));
  }
  if (depth == 0) current_ = pointer;
  rules_[rule].resolving = true;
  const std::vector<RuleId> parts = rules_[rule].parts;
  const bool is_union = rules_[rule].kind == Kind::Union;
  std::vector<std::uint32_t> shapes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    resolve_parts(parts[i], depth + 1);
    const std::vector<std::uint32_t> added = rules_[parts[i]].shapes;
    if (is_union || i == 0) {
      take_steps(added.size(), pointer);
      shapes.insert(shapes.end(), added.begin(), added.end());
    } else {
      std::vector<std::uint32_t> products;
      for (const std::uint32_t a : shapes) {
        for (const std::uint32_t b : added) {
          take_steps(1, pointer);
          if (a == b) products.push_back(a);
          if (a == b) continue;
          Shape product = intersect_shapes(shapes_[a], shapes_[b]);
          if (is_empty(product)) continue;
          count_rules(1, pointer);
          products.push_back(static_cast<std::uint32_t>(shapes_.size()));
          shapes_.push_back(std::move(product));
        }
      }
      shapes = std::move(products);
    }
    std::ranges::sort(shapes);
    shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  }
  rules_[rule].shapes = std::move(shapes);
  rules_[rule].resolving = false;
  rules_[rule].resolved = true;
}

// Intersections of intersections become one, so that those of recursive rules are finitely many.
RuleId SchemaRules::both(RuleId a, RuleId b) {
  if (a == kAnything || a == b) return b;
  if (b == kAnything) return a;
  if (a == kNothing || b == kNothing) return kNothing;
  std::vector<RuleId> parts;
  for (const RuleId rule : {a, b}) {
    if (rules_[rule].kind == Kind::Intersection) {
      parts.insert(parts.end(), rules_[rule].parts.begin(), rules_[rule].parts.end());
    } else {
      parts.push_back(rule);
    }
  }
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (const auto found = intersections_.find(parts); found != intersections_.end()) {
    return found->second;
  }
  const RuleId rule = declare(current_);
  set_intersection(rule, parts);
  intersections_.emplace(std::move(parts), rule);
  return rule;
}

Shape SchemaRules::intersect_shapes(const Shape& a, const Shape& b) {
  Shape result;
  std::unordered_map<std::string_view, bool> listed;  // by b
  for (const auto& literal : b.literals) listed.emplace(literal->sorted, true);
  for (const auto& literal : a.literals) {
    if (listed.contains(literal->sorted) || shape_accepts(b, literal->value, 0)) {
      result.literals.push_back(literal);
    }
  }
  for (const auto& literal : b.literals) {
    if (shape_accepts(a, literal->value, 0)) result.literals.push_back(literal);
  }
  if (a.number && b.number) result.number = intersect(*a.number, *b.number);
  if (a.text && b.text) result.text = intersect_texts(*a.text, *b.text);
  if (a.array && b.array) result.array = intersect_arrays(*a.array, *b.array);
  if (a.object && b.object) result.object = intersect_objects(*a.object, *b.object);
  return result;
}

ArrayShape SchemaRules::intersect_arrays(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape result{.items = both(a.items, b.items), .count = intersect_counts(a.count, b.count)};
  for (std::size_t i = 0; i < std::max(a.prefix.size(), b.prefix.size()); ++i) {
    take_steps(1, current_);
    result.prefix.push_back(both(a.rule_at(i), b.rule_at(i)));
  }
  return result;
}

// The properties of a come first, then those that only b names.
ObjectShape SchemaRules::intersect_objects(const ObjectShape& a, const ObjectShape& b) {
  std::unordered_map<std::string_view, const Property*> named;
  for (const Property& property : b.properties) named.emplace(property.name, &property);
  ObjectShape result{.additional = both(a.additional, b.additional)};
  for (const Property& property : a.properties) {
    take_steps(1, current_);
    count_bytes(property.name.size(), current_);
    const auto other = named.find(property.name);
    const bool in_both = other != named.end();
    result.properties.push_back({property.name,
                                 both(property.rule, in_both ? other->second->rule : b.additional),
                                 property.required || (in_both && other->second->required)});
    if (in_both) named.erase(other);
  }
  for (const Property& property : b.properties) {
    take_steps(1, current_);
    if (!named.contains(property.name)) continue;
    count_bytes(property.name.size(), current_);
    result.properties.push_back(
        {property.name, both(property.rule, a.additional), property.required});
  }
  count_rules(result.properties.size(), current_);
  return result;
}

bool SchemaRules::accepts(RuleId rule, const SchemaValue& value, int depth) {
  resolve_parts(rule, depth);
  const std::string sorted = spell(value, true);
  return std::ranges::any_of(rules_[rule].shapes, [&](std::uint32_t index) {
    const Shape& shape = shapes_[index];
    take_steps(1 + shape.literals.size() + sorted.size() / 16, current_);
    return std::ranges::any_of(shape.literals,
                               [&](const auto& literal) { return literal->sorted == sorted; }) ||
           shape_accepts(shape, value, depth + 1);
  });
}

// Whether the value is in the shape, apart from its literals.
bool SchemaRules::shape_accepts(const Shape& shape, const SchemaValue& value, int depth) {
  take_steps(1 + value.text.size() / 64 + value.elements.size() + value.members.size(), current_);
  switch (value.kind) {
    case SchemaValue::Kind::Number:
      return shape.number && shape.number->contains(value.number);
    case SchemaValue::Kind::String:
      return shape.text && shape.text->contains(value.text);
    case SchemaValue::Kind::Array:
      if (!shape.array || !shape.array->count.contains(value.elements.size())) return false;
      for (std::size_t i = 0; i < value.elements.size(); ++i) {
        if (!accepts(shape.array->rule_at(i), value.elements[i], depth)) return false;
      }
      return true;
    case SchemaValue::Kind::Object:
      return shape.object && accepts_object(*shape.object, value, depth);
    case SchemaValue::Kind::Null:
    case SchemaValue::Kind::Bool:
      break;
  }
  return false;
}

bool SchemaRules::accepts_object(const ObjectShape& shape, const SchemaValue& value, int depth) {
  std::unordered_map<std::string_view, const SchemaValue*> rest;
  for (const auto& [name, member] : value.members) rest.emplace(name, &member);
  for (const Property& property : shape.properties) {
    take_steps(1, current_);
    const auto found = rest.find(property.name);
    if (found == rest.end()) {
      if (property.required) return false;
      continue;
    }
    if (!accepts(property.rule, *found->second, depth)) return false;
    rest.erase(found);
  }
  return std::ranges::all_of(
      rest, [&](const auto& member) { return accepts(shape.additional, *member.second, depth); });
}

}  // namespace hone::infer::grammar
