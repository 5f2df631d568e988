// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/infer/grammar/json_schema.h"
#include "hone/infer/grammar/number_progress.h"

namespace hone::infer::grammar {

enum class Phase : std::uint8_t {
  Value,        // a value of `rule` begins
  Literal,      // node `position` of the trie of `rule`
  Text,         // in a string, after `position` code points
  Pattern,      // after `name` characters of a string, in state `position` of pattern `rule`
  Number,       // see `number`
  ArrayOpen,    // after "["
  ArrayNext,    // after `position` elements
  ObjectOpen,   // after "{"; property `position` and later ones may follow
  ObjectNext,   // after a property
  ObjectComma,  // after a comma
  Name,         // node `name` of the trie of names
  FreeName,     // after `name` code points of a name that the schema does not list
  Colon,        // before the colon of property `name`, kNoLimit for an unlisted one
  Script,       // in node `rule` of the script: `position` bytes of it, kFinished, kLost
  Done,
};

// The innermost value that is being read. `below` is the place of its container in the arena.
struct Frame {
  std::uint64_t hash = 0;  // hash of an unlisted name
  std::uint32_t rule = 0;  // the rule of a value, or the part that `phase` belongs to
  std::uint32_t below = kNoLimit;
  std::uint32_t position = 0, name = 0;
  std::uint32_t used_names = kNoLimit;  // arena index of the last unlisted name of this object
  std::uint16_t containers = 0;         // open containers around the value
  Phase phase = Phase::Value;
  std::uint8_t character = 0;  // progress within a character, or whether a space may follow
  NumberProgress number{};
  friend bool operator==(const Frame&, const Frame&) = default;
};

// Reads a text byte by byte and determines which bytes may follow. Reads a text in all possible
// ways at once, and rejects a byte that would need more than kMaxReadings ways.
class Matcher {
 public:
  static constexpr std::size_t kMaxReadings = 256;

  // A position in a text. Cheap to copy. Belongs to its matcher and remains valid, so that a caller
  // can return to it.
  class State {
   public:
    // Whether the text cannot continue, because no byte is allowed.
    bool is_dead() const { return readings_.empty(); }

   private:
    friend class Matcher;
    std::vector<Frame> readings_;
  };

  explicit Matcher(std::shared_ptr<const JsonSchema> schema);

  const State& start() const { return start_; }
  // The state after more bytes; dead if they are not allowed. Throws Error{Resource} for a text of
  // millions of values.
  State advance(const State& state, std::string_view bytes);
  // Whether the text up to here satisfies the schema.
  bool is_accepting(const State& state) const;
  // Whether the text satisfies the schema and nothing can follow.
  bool is_complete(const State& state) const;

  // For walks over many continuations that reuse `next`. cut() removes everything that was added to
  // the arena after the mark. States that were reached after the mark become invalid.
  struct Mark {
    std::size_t frames = 0, names = 0;
  };
  Mark mark() const { return {frames_.size(), names_.size()}; }
  void cut(const Mark& mark);
  void advance_byte(const State& state, std::uint8_t byte, State& next);

  // The tokens that scripts demand by id, and the state after a token by its id.
  std::vector<text::TokenId> next_tokens(const State& state) const;
  // With `has_text`, only where a script names the token. Otherwise, it also adds nothing to a Free
  // part, whose text must begin again.
  State advance_token(const State& state, text::TokenId id, bool has_text) const;
  // The node of a reading in a Free part.
  const ScriptNode& free_node(const Frame& reading) const {
    return schema_->script()[reading.rule];
  }

  // States with equal keys have equal masks for tokens of at most `longest` bytes. A key omits
  // counts that such a token cannot bring to their limits.
  std::string key(const State& state, std::uint32_t longest) const;

  // A reading inside a string that is a value or an unlisted name. At most `room` and at least
  // `missing` characters may follow, including one that has begun.
  struct InString {
    Frame frame{};
    std::uint32_t room = 0, missing = 0;
    bool is_name() const { return frame.phase == Phase::FreeName; }
  };
  // Separates such readings from the others.
  struct Parts {
    std::vector<InString> strings;
    std::vector<Frame> free;  // in a Free part of a script
    State others;
  };
  Parts split(const State& state) const;
  static State state_of(const Frame& reading);
  // Adds to `next` the state after the quote that ends the string, whatever its characters are. For
  // a name, the text that follows must not end another name.
  void end_string(const Frame& reading, State& next);
  // Whether the characters of the string allow it to end after `bytes`. False for a name that is
  // already used.
  bool may_end_after(const Frame& reading, std::string_view bytes) const;

 private:
  struct UsedName {
    std::uint64_t hash = 0;
    std::uint32_t previous = kNoLimit, count = 0;
    friend bool operator==(const UsedName&, const UsedName&) = default;
  };

  void step(Frame frame, std::uint8_t byte, State& next);
  void step_script(const Frame& frame, std::uint8_t byte, State& next);
  bool step_container(Frame& frame, std::uint8_t byte, State& next);
  void step_value(const Frame& frame, std::uint8_t byte, State& next);
  void step_pattern(const Frame& frame, std::uint8_t byte, State& next);
  void step_text(const Frame& frame, std::uint8_t byte, State& next);
  void step_name(Frame frame, std::uint8_t byte, State& next);
  void step_free_name(const Frame& frame, std::uint8_t byte, State& next);
  void begin_name(const Frame& frame, State& next);
  static void add(State& next, const Frame& frame);
  void enter(const Frame& container, RuleId rule, bool after_space, State& next);
  Frame leave(const Frame& frame) const;
  Frame finish_node(std::uint32_t node) const;
  bool fits(RuleId rule, int containers) const;
  bool may_name(const ObjectPart& part, const Frame& frame, std::uint32_t node) const;
  bool may_add_names(const ObjectPart& part, const Frame& frame) const;
  bool is_taken(const Frame& frame) const;
  std::uint32_t name_limit(const Frame& frame) const;
  std::uint32_t wait(const Frame& container);
  bool ends_here(const Frame& frame) const;
  std::optional<std::uint32_t> ended_node(const Frame& frame) const;
  bool ends_text(const Frame& frame) const;
  void split_script(const Frame& frame, Parts& parts) const;
  void append_key(const Frame& frame, std::uint32_t longest, std::string& key) const;

  std::shared_ptr<const JsonSchema> schema_;
  State start_;
  std::vector<Frame> frames_;
  std::vector<UsedName> names_;
  Mark step_{};  // end of the arena before the last byte
};

}  // namespace hone::infer::grammar
