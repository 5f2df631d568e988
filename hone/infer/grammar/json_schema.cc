// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/json_schema.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "hone/core/check.h"
#include "hone/infer/grammar/schema_reader.h"

namespace hone::infer::grammar {
namespace {

constexpr std::size_t kMaxParts = 64;  // arrays and objects that one value may turn out to be

// The names of a free object are hashed as they are spelled, without quotes.
std::uint64_t hash_name(std::string_view spelled) {
  std::uint64_t hash = kNameHashSeed;
  for (const char c : spelled) hash = extend_name_hash(hash, static_cast<std::uint8_t>(c));
  return hash;
}

}  // namespace

// Turns resolved rules into tables, from the root to everything that it reaches.
class JsonSchema::Builder {
 public:
  explicit Builder(SchemaRules& rules) : source_(rules) {}

  JsonSchema build(RuleId root) {
    result_.root_ = table_of(root);
    for (std::size_t i = 0; i < found_.size(); ++i) build_rule(static_cast<RuleId>(i));
    find_heights();
    return std::move(result_);
  }

 private:
  RuleId table_of(RuleId rule) {
    const auto [found, added] = tables_.emplace(rule, static_cast<RuleId>(found_.size()));
    if (added) found_.push_back(rule);
    return found->second;
  }
  void build_rule(RuleId table);
  std::uint32_t build_array(const ArrayShape& shape);
  std::uint32_t build_object(const ObjectShape& shape);
  void index_names(ObjectPart& part);
  void find_heights();
  bool update_heights();
  Height height_of(const ArrayPart& part) const;
  Height height_of(const ObjectPart& part) const;

  SchemaRules& source_;
  JsonSchema result_;
  std::unordered_map<RuleId, RuleId> tables_;
  std::vector<RuleId> found_;  // rules of the source by table
};

void JsonSchema::Builder::build_rule(RuleId table) {
  const RuleId rule = found_[table];
  ValueRule built;
  std::vector<std::string> literals;
  std::vector<CountRange> texts;
  std::vector<NumberRange> numbers;
  for (const std::uint32_t index : source_.resolve(rule)) {
    const Shape& shape = source_.shape(index);
    for (const auto& literal : shape.literals) {
      source_.count_bytes(literal->text.size(), source_.pointer(rule));
      literals.push_back(literal->text);
    }
    if (shape.text && shape.text->low <= shape.text->high) texts.push_back(*shape.text);
    if (shape.number) numbers.push_back(*shape.number);
    if (shape.array && shape.array->count.low <= shape.array->count.high) {
      built.arrays.push_back(build_array(*shape.array));
    }
    if (shape.object) built.objects.push_back(build_object(*shape.object));
  }
  for (const CountRange& range : texts) {
    if (std::ranges::find(texts, range) != texts.begin() + (&range - texts.data())) continue;
    built.texts.push_back(static_cast<std::uint32_t>(result_.texts_.size()));
    result_.texts_.push_back(range);
  }
  for (const NumberRange& range : numbers) {
    if (std::ranges::find(numbers, range) != numbers.begin() + (&range - numbers.data())) continue;
    NumberPart part{magnitudes(range, false), magnitudes(range, true)};
    if (!part.positive.possible && !part.negative.possible) continue;
    built.numbers.push_back(static_cast<std::uint32_t>(result_.numbers_.size()));
    result_.numbers_.push_back(std::move(part));
  }
  for (const auto* parts : {&built.texts, &built.numbers, &built.arrays, &built.objects}) {
    if (parts->size() <= kMaxParts) continue;
    refuse_schema(source_.pointer(rule), concat("The keyword \"anyOf\" has more than ", kMaxParts,
                                                " different alternatives of one type."));
  }
  std::ranges::sort(literals);
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  built.literals = ByteTrie(literals);
  if (!literals.empty() || !built.texts.empty() || !built.numbers.empty()) built.height = 0;
  result_.rules_.resize(std::max<std::size_t>(result_.rules_.size(), table + 1));
  result_.rules_[table] = std::move(built);
}

std::uint32_t JsonSchema::Builder::build_array(const ArrayShape& shape) {
  ArrayPart part{.shape = {.count = shape.count}};
  for (const RuleId rule : shape.prefix) part.shape.prefix.push_back(table_of(rule));
  part.shape.items = table_of(shape.items);
  result_.arrays_.push_back(std::move(part));
  return static_cast<std::uint32_t>(result_.arrays_.size() - 1);
}

std::uint32_t JsonSchema::Builder::build_object(const ObjectShape& shape) {
  ObjectPart part{.properties = shape.properties, .additional = table_of(shape.additional)};
  for (Property& property : part.properties) property.rule = table_of(property.rule);
  const auto count = static_cast<std::uint32_t>(part.properties.size());
  part.last_open.resize(count);
  std::uint32_t last = count - 1;
  for (std::uint32_t i = count; i-- > 0;) {
    if (part.properties[i].required) {
      last = i;
      part.required_end = std::max(part.required_end, i + 1);
    }
    part.last_open[i] = last;
  }
  index_names(part);
  result_.objects_.push_back(std::move(part));
  return static_cast<std::uint32_t>(result_.objects_.size() - 1);
}

void JsonSchema::Builder::index_names(ObjectPart& part) {
  std::vector<std::string> spelled;
  for (const Property& property : part.properties) {
    source_.count_bytes(property.name.size(), "");
    spelled.push_back(spell_string(property.name).substr(1));
    part.longest_name =
        std::max(part.longest_name, static_cast<std::uint32_t>(spelled.back().size() - 1));
    part.name_hashes.insert(
        hash_name(std::string_view(spelled.back()).substr(0, spelled.back().size() - 1)));
  }
  part.order.resize(spelled.size());
  std::iota(part.order.begin(), part.order.end(), 0);
  std::ranges::sort(part.order, {},
                    [&](std::uint32_t i) -> const std::string& { return spelled[i]; });
  std::ranges::sort(spelled);
  part.names = ByteTrie(spelled);
}

Height JsonSchema::Builder::height_of(const ArrayPart& part) const {
  Height inner = 0;
  const std::size_t needed = part.shape.count.low, prefix = part.shape.prefix.size();
  for (std::size_t i = 0; i < std::min(needed, prefix); ++i) {
    inner = std::max(inner, result_.rules_[part.shape.prefix[i]].height);
  }
  if (needed > prefix) inner = std::max(inner, result_.rules_[part.shape.items].height);
  return std::min<Height>(kNeverEnds, inner + 1);
}

Height JsonSchema::Builder::height_of(const ObjectPart& part) const {
  Height inner = 0;
  for (const Property& property : part.properties) {
    if (property.required) inner = std::max(inner, result_.rules_[property.rule].height);
  }
  return std::min<Height>(kNeverEnds, inner + 1);
}

// Heights only fall, and the final ones of h containers are known after h rounds.
void JsonSchema::Builder::find_heights() {
  while (update_heights()) {
  }
}

bool JsonSchema::Builder::update_heights() {
  bool changed = false;
  for (ArrayPart& part : result_.arrays_) part.height = height_of(part);
  for (ObjectPart& part : result_.objects_) part.height = height_of(part);
  for (ValueRule& rule : result_.rules_) {
    Height height = rule.height;
    for (const std::uint32_t i : rule.arrays) height = std::min(height, result_.arrays_[i].height);
    for (const std::uint32_t i : rule.objects)
      height = std::min(height, result_.objects_[i].height);
    changed = changed || height != rule.height;
    rule.height = height;
  }
  return changed;
}

std::shared_ptr<const JsonSchema> JsonSchema::compile(std::string_view text,
                                                      std::vector<std::string>* ignored) {
  const SchemaValue schema = parse_schema_text(text);
  SchemaRules rules;
  const RuleId root = read_schema(schema, rules, ignored);
  JsonSchema built = Builder(rules).build(root);
  HONE_REQUIRE(built.rule(built.root()).height <= kMaxContainers, "JSON schema",
               "No value satisfies the schema.");
  return std::make_shared<const JsonSchema>(std::move(built));
}

}  // namespace hone::infer::grammar
