// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "hone/infer/grammar/byte_trie.h"
#include "hone/infer/grammar/decimal.h"
#include "hone/infer/grammar/schema_rules.h"
#include "hone/infer/grammar/script.h"

namespace hone::infer::grammar {

inline constexpr int kMaxContainers = 256;  // arrays and objects that are open at the same time
// Limits for property names that the schema does not list. An object has at most kMaxFreeNames of
// them. Name n = 0, 1, … has at most max(kMaxFreeNamePoints, L + 1) + n characters, where L is the
// number of bytes of the longest listed name.
inline constexpr std::uint32_t kMaxFreeNamePoints = 128, kMaxFreeNames = 256;

// The minimum number of nested containers that a value needs; kNeverEnds if it needs more than
// kMaxContainers.
using Height = std::uint16_t;
inline constexpr Height kNeverEnds = kMaxContainers + 1;

struct NumberPart {
  MagnitudeRange positive{}, negative{};
};

// Strings that an automaton accepts, of at most `most` characters.
struct PatternPart {
  Automaton automaton{};
  std::vector<std::uint32_t> missing{};  // Automaton::missing_characters()
  std::uint32_t most_missing = 0;        // the largest of them
  std::uint32_t most = kNoLimit;
};

struct ArrayPart {
  ArrayShape shape{};
  Height height = kNeverEnds;
};

struct ObjectPart {
  std::vector<Property> properties{};
  std::vector<std::uint32_t> last_open{};  // by index: the next required property, or the last one
  RuleId additional = 0;
  ByteTrie names{};                    // as spelled, with the closing quote
  std::vector<std::uint32_t> order{};  // the index of the property by the rank of its name
  std::unordered_set<std::uint64_t> name_hashes{};
  std::uint32_t longest_name = 0;  // in bytes, as spelled
  std::uint32_t required_end = 0;  // one past the last required property
  Height height = kNeverEnds;
};

// A set of values: the literals of a trie, and the values of each part.
struct ValueRule {
  ByteTrie literals{};
  std::vector<std::uint32_t> texts{}, patterns{}, numbers{}, arrays{}, objects{};
  Height height = kNeverEnds;
};

// A JSON schema, or a format with schemas, compiled to the tables of a pushdown automaton over
// bytes, which accepts the texts of docs/structured-output.md. Immutable.
class JsonSchema {
 public:
  // Throws Error{CorruptFile} for malformed JSON, Error{Unsupported} with the JSON pointer for
  // keywords that cannot be enforced exactly and for schemas beyond the limits, and
  // Error{InvalidArgument} for malformed keywords and for schemas that no value satisfies. With
  // `ignored`, keywords that cannot be enforced are left out, and their JSON pointers are added to
  // it.
  static std::shared_ptr<const JsonSchema> compile(std::string_view text,
                                                   std::vector<std::string>* ignored = nullptr);
  // The same for a format, each of whose schemas says whether keywords may be left out.
  static std::shared_ptr<const JsonSchema> compile(const OutputFormat& format,
                                                   std::vector<std::string>* ignored);

  // The nodes of a format; empty for a schema, whose values begin with root().
  const std::vector<ScriptNode>& script() const { return script_; }
  std::size_t memory_bytes() const;

  RuleId root() const { return root_; }
  const ValueRule& rule(RuleId id) const { return rules_[id]; }
  const CountRange& text(std::uint32_t id) const { return texts_[id]; }
  const PatternPart& pattern(std::uint32_t id) const { return patterns_[id]; }
  const NumberPart& number(std::uint32_t id) const { return numbers_[id]; }
  const ArrayPart& array(std::uint32_t id) const { return arrays_[id]; }
  const ObjectPart& object(std::uint32_t id) const { return objects_[id]; }

 private:
  class Builder;
  RuleId root_ = 0;
  std::vector<ScriptNode> script_;
  std::vector<ValueRule> rules_;
  std::vector<CountRange> texts_;
  std::vector<PatternPart> patterns_;
  std::vector<NumberPart> numbers_;
  std::vector<ArrayPart> arrays_;
  std::vector<ObjectPart> objects_;
};

// Adds one byte of a name to its hash. The hash of an empty name is kNameHashSeed.
inline constexpr std::uint64_t kNameHashSeed = 0xcbf29ce484222325;
constexpr std::uint64_t extend_name_hash(std::uint64_t hash, std::uint8_t byte) {
  hash = (hash ^ byte) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

}  // namespace hone::infer::grammar
