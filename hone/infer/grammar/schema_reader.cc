// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/schema_reader.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/infer/grammar/pattern/formats.h"
#include "hone/infer/grammar/pattern/regex.h"

namespace hone::infer::grammar {
namespace {

using Kind = SchemaValue::Kind;

constexpr int kMaxSchemaDepth = 32;
constexpr std::array<std::string_view, 13> kAnnotations = {
    "title",        "description", "default",  "examples",  "example",          "$comment",
    "$schema",      "deprecated",  "readOnly", "writeOnly", "contentMediaType", "contentEncoding",
    "discriminator"};
constexpr std::array<std::string_view, 2> kDefinitions = {"$defs", "definitions"};
constexpr std::array<std::string_view, 3> kCombining = {"anyOf", "oneOf", "allOf"};
// Formats that say how a program keeps a value, or how a form shows it.
constexpr std::array<std::string_view, 4> kShownFormats = {"password", "binary", "float", "double"};
constexpr std::array<std::string_view, 17> kTypedKeywords = {"type",
                                                             "properties",
                                                             "required",
                                                             "additionalProperties",
                                                             "items",
                                                             "minItems",
                                                             "maxItems",
                                                             "minLength",
                                                             "maxLength",
                                                             "prefixItems",
                                                             "minimum",
                                                             "maximum",
                                                             "exclusiveMinimum",
                                                             "exclusiveMaximum",
                                                             "multipleOf",
                                                             "pattern",
                                                             "format"};

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, name) != names.end();
}

std::string escape_pointer(std::string_view name) {
  std::string out;
  for (const char c : shorten(name, 64)) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

[[noreturn]] void refuse_value(std::string_view pointer, std::string_view expected) {
  fail_argument("JSON schema", concat("At ", pointer, ": Expected ", expected, "."));
}

class SchemaReader {
 public:
  SchemaReader(const SchemaValue& root, SchemaRules& rules, const SchemaOptions& options)
      : root_(root),
        rules_(rules),
        ignored_(options.ignored),
        label_(options.label),
        closes_objects_(options.closes_objects) {}

  RuleId read() {
    const RuleId rule = rule_of(root_, label_, 1, true);
    while (!queue_.empty()) {
      const Task task = queue_.front();
      queue_.pop_front();
      read_object(task);
    }
    return rule;
  }

 private:
  struct Task {
    const SchemaValue* schema;
    RuleId rule;
    std::string pointer;
    int depth;
    bool is_whole;  // whether no other schema says anything about the same value
  };

  RuleId rule_of(const SchemaValue& schema, std::string pointer, int depth, bool is_whole);
  void refuse_or_ignore(const Task& task, std::string_view keyword,
                        std::string_view sentence) const;
  void read_object(const Task& task);
  void check_keywords(const Task& task) const;
  void limit_parts(std::vector<RuleId>& alternatives, RuleId beside, const Task& task);
  Shape read_shape(const Task& task);
  void read_types(const Task& task, Shape& shape) const;
  void read_patterns(const Task& task, TextShape& text);
  std::shared_ptr<const Automaton> automaton_of(const std::string& pattern,
                                                std::string_view pointer);
  void read_multiples(const Task& task, Shape& shape);
  void read_numbers(const Task& task, NumberRange& range) const;
  void read_array(const Task& task, ArrayShape& array);
  void read_properties(const Task& task, ObjectShape& object);
  void read_required(const Task& task, ObjectShape& object) const;
  std::vector<RuleId> read_list(const Task& task, std::string_view keyword, bool is_whole);
  std::uint32_t read_count(const Task& task, std::string_view keyword, std::uint32_t absent) const;
  RuleId read_literals(const Task& task, std::string_view keyword);
  RuleId read_reference(const Task& task, const SchemaValue& reference);

  const SchemaValue& root_;
  SchemaRules& rules_;
  std::vector<std::string>* ignored_;  // null: nothing may be ignored
  const std::string label_;
  const bool closes_objects_;
  std::deque<Task> queue_;
  std::map<std::pair<const SchemaValue*, bool>, RuleId> known_;
  std::map<std::string, std::shared_ptr<const Automaton>> automata_;  // by pattern
};

RuleId SchemaReader::rule_of(const SchemaValue& schema, std::string pointer, int depth,
                             bool is_whole) {
  if (schema.kind == Kind::Bool) return schema.boolean ? rules_.anything() : rules_.nothing();
  if (schema.kind != Kind::Object) {
    refuse_value(pointer.empty() ? "the root" : pointer, "a schema: an object or a boolean");
  }
  const std::pair key(&schema, is_whole && closes_objects_);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (depth > kMaxSchemaDepth) {
    refuse_schema(pointer,
                  concat("Schemas are nested more than ", kMaxSchemaDepth, " levels deep."));
  }
  const RuleId rule = rules_.declare(pointer);
  known_.emplace(key, rule);
  queue_.push_back({&schema, rule, std::move(pointer), depth, key.second});
  return rule;
}

// Notes a keyword that cannot be enforced, unless nothing may be ignored.
void SchemaReader::refuse_or_ignore(const Task& task, std::string_view keyword,
                                    std::string_view sentence) const {
  if (ignored_ == nullptr) refuse_schema(task.pointer, sentence);
  ignored_->push_back(concat(task.pointer, "/", escape_pointer(keyword)));
}

// The drafts disagree on keywords beside $ref, so that only annotations and definitions may be
// there.
void SchemaReader::check_keywords(const Task& task) const {
  const bool is_reference = task.schema->find("$ref") != nullptr;
  for (const auto& [name, value] : task.schema->members) {
    const bool is_enforced = is_one_of(name, kTypedKeywords) || is_one_of(name, kCombining) ||
                             name == "enum" || name == "const";
    const bool is_known = is_enforced || name == "$ref" || is_one_of(name, kAnnotations) ||
                          is_one_of(name, kDefinitions) || (name == "$id" && task.schema == &root_);
    if (!is_known || (is_enforced && is_reference)) {
      refuse_or_ignore(task, name,
                       concat("The keyword \"", shorten(name), "\" cannot be enforced",
                              is_known ? " beside \"$ref\"." : "."));
    }
    if (is_one_of(name, kDefinitions) && value.kind != Kind::Object) {
      refuse_value(concat(task.pointer, "/", name), "an object of schemas");
    }
  }
}

// The schema is the intersection of what its keywords say.
void SchemaReader::read_object(const Task& task) {
  check_keywords(task);
  if (const SchemaValue* reference = task.schema->find("$ref")) {
    rules_.set_union(task.rule, {read_reference(task, *reference)});
    return;
  }
  std::vector<RuleId> parts;
  const auto is_typed = [](const auto& member) { return is_one_of(member.first, kTypedKeywords); };
  const auto has = [&](std::string_view keyword) { return task.schema->find(keyword) != nullptr; };
  const bool has_typed = std::ranges::any_of(task.schema->members, is_typed);
  if (has_typed) {
    parts.push_back(rules_.declare(task.pointer));
    rules_.set_shape(parts.back(), read_shape(task));
  }
  for (const char* keyword : {"enum", "const"}) {
    if (task.schema->find(keyword) != nullptr) parts.push_back(read_literals(task, keyword));
  }
  if (task.schema->find("allOf") != nullptr) {
    for (const RuleId rule : read_list(task, "allOf", false)) parts.push_back(rule);
  }
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    if (task.schema->find(keyword) == nullptr) continue;
    const RuleId rule = rules_.declare(task.pointer);
    const bool is_alone = !has_typed && std::ranges::count_if(kCombining, has) == 1;
    std::vector<RuleId> alternatives = read_list(task, keyword, task.is_whole && is_alone);
    if (keyword == "anyOf") {
      rules_.set_union(rule, std::move(alternatives));
    } else {
      if (has_typed) limit_parts(alternatives, parts.front(), task);
      rules_.set_one_of(rule, std::move(alternatives), ignored_);
    }
    parts.push_back(rule);
  }
  if (parts.empty()) parts.push_back(rules_.anything());
  if (parts.size() == 1) {
    rules_.set_union(task.rule, std::move(parts));
  } else {
    rules_.set_intersection(task.rule, std::move(parts));
  }
}

// What stands beside "oneOf" holds for each alternative, which may be what tells them apart.
void SchemaReader::limit_parts(std::vector<RuleId>& alternatives, RuleId beside, const Task& task) {
  for (RuleId& alternative : alternatives) {
    const RuleId both = rules_.declare(task.pointer);
    rules_.set_intersection(both, {beside, alternative});
    alternative = both;
  }
}

Shape SchemaReader::read_shape(const Task& task) {
  Shape shape;
  shape.array.emplace().items = rules_.anything();
  shape.object.emplace().additional = rules_.anything();
  shape.text.emplace();
  shape.number.emplace();
  read_numbers(task, *shape.number);
  shape.text->count.low = read_count(task, "minLength", 0);
  shape.text->count.high = read_count(task, "maxLength", kNoLimit);
  read_patterns(task, *shape.text);
  read_array(task, *shape.array);
  if (const SchemaValue* additional = task.schema->find("additionalProperties")) {
    shape.object->additional = rule_of(*additional, concat(task.pointer, "/additionalProperties"),
                                       task.depth + 1, task.is_whole);
  }
  read_properties(task, *shape.object);
  read_required(task, *shape.object);
  const auto has = [&](std::string_view keyword) { return task.schema->find(keyword) != nullptr; };
  const bool is_closed = task.is_whole && !shape.object->properties.empty() && has("properties") &&
                         !has("additionalProperties") && !has("enum") && !has("const") &&
                         std::ranges::none_of(kCombining, has);
  if (is_closed) shape.object->additional = rules_.nothing();
  read_types(task, shape);
  read_multiples(task, shape);
  return shape;
}

void SchemaReader::read_patterns(const Task& task, TextShape& text) {
  for (const std::string_view keyword : {"pattern", "format"}) {
    const SchemaValue* value = task.schema->find(keyword);
    if (value == nullptr) continue;
    if (value->kind != Kind::String) {
      refuse_value(concat(task.pointer, "/", keyword), "a string");
    }
    std::string pattern = value->text;
    if (keyword == "format") {
      if (is_one_of(pattern, kShownFormats)) continue;
      const std::optional<std::string> known = pattern_of_format(pattern);
      if (!known) {
        refuse_or_ignore(
            task, keyword,
            concat("The keyword \"format\" cannot be enforced for \"", shorten(pattern), "\"."));
        continue;
      }
      pattern = *known;
    }
    try {
      text.patterns.push_back(automaton_of(pattern, task.pointer));
    } catch (const Error& error) {
      if (ignored_ == nullptr || error.category() != ErrorCategory::Unsupported) throw;
      ignored_->push_back(concat(task.pointer, "/", keyword));
    }
  }
  std::ranges::sort(text.patterns);
}

// The same pattern at several places is one.
std::shared_ptr<const Automaton> SchemaReader::automaton_of(const std::string& pattern,
                                                            std::string_view pointer) {
  std::shared_ptr<const Automaton>& known = automata_[pattern];
  if (known == nullptr) {
    known = std::make_shared<const Automaton>(
        Automaton::of_regex(parse_regex(pattern, pointer), pointer, rules_.patterns()));
  }
  return known;
}

// Powers of ten limit the digits after the point; of other numbers, the multiples are listed.
void SchemaReader::read_multiples(const Task& task, Shape& shape) {
  const SchemaValue* value = task.schema->find("multipleOf");
  if (value == nullptr) return;
  const bool is_number =
      value->kind == Kind::Number && !value->number.negative && !value->number.is_zero();
  if (!is_number) refuse_value(concat(task.pointer, "/multipleOf"), "a number above 0");
  if (!shape.number) return;
  const Decimal& of = value->number;
  if (of.digits == "1" && of.point <= 1 && of.point >= 1 - kFractionDigits) {
    const int digits = static_cast<int>(1 - of.point);
    shape.number->fraction_digits = std::min(shape.number->fraction_digits, digits);
    return;
  }
  constexpr std::size_t kMostMultiples = 1000;
  const auto listed = multiples(*shape.number, of, kMostMultiples);
  if (!listed) {
    return refuse_or_ignore(
        task, "multipleOf",
        concat("The keyword \"multipleOf\" is enforced for 1, 0.1, 0.01 and so on, and between a"
               " minimum and a maximum with at most ",
               kMostMultiples, " multiples."));
  }
  rules_.count_rules(listed->size(), concat(task.pointer, "/multipleOf"));
  for (const Decimal& number : *listed) {
    shape.literals.push_back(
        std::make_shared<Literal>(SchemaValue{.kind = Kind::Number, .number = number}));
  }
  shape.number.reset();
}

void SchemaReader::read_types(const Task& task, Shape& shape) const {
  constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                      "string", "array",   "object"};
  std::array<bool, 7> allowed{};
  const auto allow = [&](const SchemaValue& name) {
    const auto found = std::ranges::find(kTypes, name.text);
    if (name.kind != Kind::String || found == kTypes.end()) {
      refuse_schema(task.pointer,
                    "The keyword \"type\" has a value that is none of the seven type"
                    " names.");
    }
    allowed[static_cast<std::size_t>(found - kTypes.begin())] = true;
  };
  const SchemaValue* type = task.schema->find("type");
  if (type == nullptr) {
    allowed.fill(true);
  } else if (type->kind == Kind::Array) {
    std::ranges::for_each(type->elements, allow);
  } else {
    allow(*type);
  }
  const auto [null, boolean, integer, number, string, array, object] = allowed;
  if (null) shape.literals.push_back(std::make_shared<Literal>(SchemaValue{}));
  for (const bool value : {false, true}) {
    if (!boolean) continue;
    shape.literals.push_back(
        std::make_shared<Literal>(SchemaValue{.kind = Kind::Bool, .boolean = value}));
  }
  if (!number) shape.number->fraction_digits = 0;
  if (!number && !integer) shape.number.reset();
  if (!string) shape.text.reset();
  if (!array) shape.array.reset();
  if (!object) shape.object.reset();
}

void SchemaReader::read_numbers(const Task& task, NumberRange& range) const {
  for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const SchemaValue* value = task.schema->find(keyword);
    if (value == nullptr) continue;
    if (value->kind == Kind::Bool) {
      refuse_or_ignore(task, keyword,
                       concat("The keyword \"", keyword,
                              "\" is a boolean, as in draft 4; a number is enforced."));
      continue;
    }
    if (value->kind != Kind::Number) refuse_value(concat(task.pointer, "/", keyword), "a number");
    const std::string_view name = keyword;
    NumberRange bound;
    (name.ends_with("inimum") ? bound.low : bound.high) = value->number;
    bound.low_exclusive = name == "exclusiveMinimum";
    bound.high_exclusive = name == "exclusiveMaximum";
    range = intersect(range, bound);
  }
}

void SchemaReader::read_array(const Task& task, ArrayShape& array) {
  array.count.low = read_count(task, "minItems", 0);
  array.count.high = read_count(task, "maxItems", kNoLimit);
  if (task.schema->find("prefixItems") != nullptr)
    array.prefix = read_list(task, "prefixItems", task.is_whole);
  const SchemaValue* items = task.schema->find("items");
  if (items == nullptr) return;
  if (items->kind == Kind::Array) {
    return refuse_or_ignore(task, "items",
                            "The keyword \"items\" is a list; \"prefixItems\" is enforced.");
  }
  array.items = rule_of(*items, concat(task.pointer, "/items"), task.depth + 1, task.is_whole);
}

void SchemaReader::read_properties(const Task& task, ObjectShape& object) {
  const SchemaValue* properties = task.schema->find("properties");
  if (properties == nullptr) return;
  const std::string pointer = concat(task.pointer, "/properties");
  if (properties->kind != Kind::Object) refuse_value(pointer, "an object of schemas");
  rules_.count_rules(properties->members.size(), pointer);
  for (const auto& [name, schema] : properties->members) {
    object.properties.push_back({name, rule_of(schema, concat(pointer, "/", escape_pointer(name)),
                                               task.depth + 1, task.is_whole)});
  }
}

void SchemaReader::read_required(const Task& task, ObjectShape& object) const {
  const SchemaValue* required = task.schema->find("required");
  if (required == nullptr) return;
  const std::string pointer = concat(task.pointer, "/required");
  if (required->kind == Kind::Bool) {
    return refuse_or_ignore(task, "required",
                            "The keyword \"required\" is a boolean; a list is enforced.");
  }
  if (required->kind != Kind::Array) refuse_value(pointer, "a list of strings");
  rules_.count_rules(required->elements.size(), pointer);
  // The names in the index must not move.
  object.properties.reserve(object.properties.size() + required->elements.size());
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < object.properties.size(); ++i) {
    index.emplace(object.properties[i].name, i);
  }
  for (const SchemaValue& name : required->elements) {
    if (name.kind != Kind::String) refuse_value(pointer, "a list of strings");
    const auto [found, added] = index.emplace(name.text, object.properties.size());
    if (added) object.properties.push_back({name.text, object.additional});
    object.properties[found->second].required = true;
  }
}

std::vector<RuleId> SchemaReader::read_list(const Task& task, std::string_view keyword,
                                            bool is_whole) {
  const SchemaValue& list = *task.schema->find(keyword);
  const std::string pointer = concat(task.pointer, "/", keyword);
  if (list.kind != Kind::Array || list.elements.empty()) {
    refuse_value(pointer, "a list of at least one schema");
  }
  std::vector<RuleId> parts;
  for (std::size_t i = 0; i < list.elements.size(); ++i) {
    parts.push_back(rule_of(list.elements[i], concat(pointer, "/", i), task.depth + 1, is_whole));
  }
  return parts;
}

std::uint32_t SchemaReader::read_count(const Task& task, std::string_view keyword,
                                       std::uint32_t absent) const {
  const SchemaValue* value = task.schema->find(keyword);
  if (value == nullptr) return absent;
  if (value->kind != Kind::Number || value->number.negative || !value->number.is_integer()) {
    refuse_value(concat(task.pointer, "/", keyword), "an integer of at least 0");
  }
  const std::optional<Index> count = to_count(value->number);
  if (!count) {
    refuse_schema(task.pointer, concat("The keyword \"", keyword, "\" is above 2147483647."));
  }
  return static_cast<std::uint32_t>(*count);
}

RuleId SchemaReader::read_literals(const Task& task, std::string_view keyword) {
  const SchemaValue& value = *task.schema->find(keyword);
  const RuleId rule = rules_.declare(task.pointer);
  const bool is_list = keyword == "enum";
  if (is_list && value.kind != Kind::Array) {
    refuse_value(concat(task.pointer, "/enum"), "a list of values");
  }
  const std::size_t count = is_list ? value.elements.size() : 1;
  rules_.count_rules(count, concat(task.pointer, "/", keyword));
  Shape shape;
  for (std::size_t i = 0; i < count; ++i) {
    shape.literals.push_back(std::make_shared<Literal>(is_list ? value.elements[i] : value));
  }
  rules_.set_shape(rule, std::move(shape));
  return rule;
}

// "%25" stands for "%" in a URI fragment.
std::string decode_percent(std::string_view text, std::string_view pointer) {
  std::string out;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? digit(text[i + 2]) : -1;
    if (high < 0 || low < 0)
      refuse_value(concat(pointer, "/$ref"), "percent signs with two digits");
    out += static_cast<char>(16 * high + low);
    i += 2;
  }
  return out;
}

std::string decode_segment(std::string_view segment) {
  std::string out;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    const bool escaped = segment[i] == '~' && i + 1 < segment.size() &&
                         (segment[i + 1] == '0' || segment[i + 1] == '1');
    if (escaped)
      out += segment[++i] == '0' ? '~' : '/';
    else
      out += segment[i];
  }
  return out;
}

RuleId SchemaReader::read_reference(const Task& task, const SchemaValue& reference) {
  if (reference.kind != Kind::String) refuse_value(concat(task.pointer, "/$ref"), "a string");
  if (reference.text == "#") return rule_of(root_, label_, 1, task.is_whole);
  const bool local =
      reference.text.starts_with("#/$defs/") || reference.text.starts_with("#/definitions/");
  if (!local) {
    refuse_or_ignore(
        task, "$ref",
        concat("The keyword \"$ref\" cannot be enforced for \"", shorten(reference.text),
               "\", only for \"#\", \"#/$defs/…\" and \"#/definitions/…\"."));
    return rules_.anything();
  }
  const std::string path = decode_percent(std::string_view(reference.text).substr(2), task.pointer);
  const SchemaValue* target = &root_;
  int depth = 1;
  for (std::size_t begin = 0; begin <= path.size() && target != nullptr; ++depth) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    target = target->find(decode_segment(std::string_view(path).substr(begin, end - begin)));
    begin = end + 1;
  }
  if (target == nullptr) {
    refuse_schema(task.pointer, concat("The keyword \"$ref\" names \"", shorten(reference.text),
                                       "\", which does not exist."));
  }
  return rule_of(*target, concat(label_, "/", shorten(path, 200)), (depth + 1) / 2, task.is_whole);
}

}  // namespace

RuleId read_schema(const SchemaValue& schema, SchemaRules& rules, const SchemaOptions& options) {
  return SchemaReader(schema, rules, options).read();
}

}  // namespace hone::infer::grammar
