// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

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

void check_height(const ValueRule& root, std::string_view label) {
  HONE_REQUIRE(root.height <= kMaxContainers, "JSON schema",
               concat(label, label.empty() ? "" : ": ", "No value satisfies the schema."));
}

}  // namespace

// Turns resolved rules into tables, from the root to everything that it reaches.
class JsonSchema::Builder {
 public:
  explicit Builder(SchemaRules& rules) : source_(rules) {}

  // The table of a rule, which build() makes.
  RuleId table_of(RuleId rule);

  JsonSchema build() {
    for (std::size_t i = 0; i < found_.size(); ++i) build_rule(static_cast<RuleId>(i));
    source_.check_exclusive();
    find_heights();
    return std::move(result_);
  }

 private:
  void build_rule(RuleId table);
  [[noreturn]] void refuse_parts(RuleId rule) const {
    refuse_schema(source_.pointer(rule), concat("The keyword \"anyOf\" has more than ", kMaxParts,
                                                " different alternatives of one type."));
  }
  void build_text(const TextShape& text, const std::string& pointer, ValueRule& built);
  std::uint32_t build_array(const ArrayShape& shape);
  std::uint32_t build_object(const ObjectShape& shape);
  void index_names(ObjectPart& part);
  void find_heights();
  bool update_heights();
  Height height_of(const ArrayPart& part) const;
  Height height_of(const ObjectPart& part) const;

  SchemaRules& source_;
  JsonSchema result_;
  std::map<std::vector<std::uint32_t>, RuleId> tables_;  // by shapes: equal rules share one
  std::vector<RuleId> found_;                            // rules of the source by table
};

RuleId JsonSchema::Builder::table_of(RuleId rule) {
  const auto [found, added] =
      tables_.emplace(source_.resolve(rule), static_cast<RuleId>(found_.size()));
  if (added) found_.push_back(rule);
  return found->second;
}

void JsonSchema::Builder::build_rule(RuleId table) {
  const RuleId rule = found_[table];
  ValueRule built;
  std::vector<std::string> literals;
  std::vector<TextShape> texts;
  std::vector<NumberRange> numbers;
  for (const std::uint32_t index : source_.resolve(rule)) {
    const Shape& shape = source_.shape(index);
    for (const auto& literal : shape.literals) {
      source_.count_bytes(literal->text.size(), source_.pointer(rule));
      literals.push_back(literal->text);
    }
    if (shape.text && shape.text->count.low <= shape.text->count.high) {
      texts.push_back(*shape.text);
    }
    if (shape.number) numbers.push_back(*shape.number);
    if (shape.array && shape.array->count.low <= shape.array->count.high) {
      built.arrays.push_back(build_array(*shape.array));
    }
    if (shape.object) built.objects.push_back(build_object(*shape.object));
  }
  if (texts.size() > kMaxParts * kMaxParts) refuse_parts(rule);
  for (const TextShape& text : texts) {
    if (built.patterns.size() > kMaxParts) refuse_parts(rule);
    if (std::ranges::find(texts, text) == texts.begin() + (&text - texts.data())) {
      build_text(text, source_.pointer(rule), built);
    }
  }
  for (const NumberRange& range : numbers) {
    if (std::ranges::find(numbers, range) != numbers.begin() + (&range - numbers.data())) continue;
    NumberPart part{magnitudes(range, false), magnitudes(range, true)};
    if (!part.positive.possible && !part.negative.possible) continue;
    built.numbers.push_back(static_cast<std::uint32_t>(result_.numbers_.size()));
    result_.numbers_.push_back(std::move(part));
  }
  for (const auto* parts :
       {&built.texts, &built.patterns, &built.numbers, &built.arrays, &built.objects}) {
    if (parts->size() <= kMaxParts) continue;
    refuse_parts(rule);
  }
  std::ranges::sort(literals);
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  built.literals = ByteTrie(literals);
  const bool has_simple = !literals.empty() || !built.texts.empty() || !built.patterns.empty() ||
                          !built.numbers.empty();
  if (has_simple) built.height = 0;
  result_.rules_.resize(std::max<std::size_t>(result_.rules_.size(), table + 1));
  result_.rules_[table] = std::move(built);
}

void JsonSchema::Builder::build_text(const TextShape& text, const std::string& pointer,
                                     ValueRule& built) {
  if (text.patterns.empty()) {
    built.texts.push_back(static_cast<std::uint32_t>(result_.texts_.size()));
    result_.texts_.push_back(text.count);
    return;
  }
  Automaton all = *text.patterns.front();
  for (std::size_t i = 1; i < text.patterns.size(); ++i) {
    all = Automaton::intersect(all, *text.patterns[i], pointer, source_.patterns());
  }
  if (text.count.low > 0) all = all.at_least(text.count.low, pointer, source_.patterns());
  if (all.is_empty()) return;
  PatternPart part{.automaton = std::move(all), .missing = {}, .most = text.count.high};
  part.missing = part.automaton.missing_characters();
  if (!part.missing.empty()) part.most_missing = *std::ranges::max_element(part.missing);
  if (part.missing[part.automaton.start()] > part.most) return;
  built.patterns.push_back(static_cast<std::uint32_t>(result_.patterns_.size()));
  result_.patterns_.push_back(std::move(part));
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
  Builder builder(rules);
  const RuleId root = builder.table_of(read_schema(schema, rules, {.ignored = ignored}));
  JsonSchema built = builder.build();
  built.root_ = root;
  check_height(built.rule(root), "");
  return std::make_shared<const JsonSchema>(std::move(built));
}

std::shared_ptr<const JsonSchema> JsonSchema::compile(const OutputFormat& format,
                                                      std::vector<std::string>* ignored) {
  SchemaRules rules;
  Builder builder(rules);
  std::deque<SchemaValue> schemas;  // rules refer to them
  std::vector<std::pair<RuleId, std::string>> roots;
  std::vector<std::string> unused;
  std::vector<std::string>* left_out = ignored != nullptr ? ignored : &unused;
  std::vector<ScriptNode> script = make_script(format, [&](const OutputPart& part) {
    schemas.push_back(parse_schema_text(part.text, part.label));
    const RuleId rule = read_schema(schemas.back(), rules,
                                    {.ignored = part.is_strict ? nullptr : left_out,
                                     .label = part.label,
                                     .closes_objects = true});
    roots.emplace_back(builder.table_of(rule), part.label);
    return roots.back().first;
  });
  JsonSchema built = builder.build();
  for (const auto& [root, label] : roots) check_height(built.rule(root), label);
  built.script_ = std::move(script);
  return std::make_shared<const JsonSchema>(std::move(built));
}

std::size_t JsonSchema::memory_bytes() const {
  std::size_t bytes = sizeof(*this);
  for (const ScriptNode& node : script_) {
    bytes += sizeof(node) + node.text.size() + 4 * (node.borders.size() + node.next.size());
  }
  for (const ValueRule& rule : rules_) bytes += sizeof(rule) + rule.literals.memory_bytes();
  bytes += texts_.size() * sizeof(CountRange) + numbers_.size() * sizeof(NumberPart);
  for (const PatternPart& pattern : patterns_) {
    bytes += pattern.automaton.memory_bytes() + pattern.missing.size() * sizeof(std::uint32_t);
  }
  for (const ArrayPart& array : arrays_) {
    bytes += sizeof(array) + array.shape.prefix.size() * sizeof(RuleId);
  }
  for (const ObjectPart& object : objects_) {
    bytes += sizeof(object) + object.names.memory_bytes();
    for (const Property& property : object.properties) {
      bytes += sizeof(property) + property.name.size() + 40;
    }
  }
  return bytes;
}

}  // namespace hone::infer::grammar
