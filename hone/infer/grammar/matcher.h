// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
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
  Number,       // see `number`
  ArrayOpen,    // after "["
  ArrayNext,    // after `position` elements
  ObjectOpen,   // after "{"; property `position` and later ones may follow
  ObjectNext,   // after a property
  ObjectComma,  // after a comma
  Name,         // node `name` of the trie of names
  FreeName,     // after `name` code points of a name that the schema does not list
  Colon,        // before the colon of property `name`, kNoLimit for an unlisted one
  Done,
};

// The innermost value that is being read; `below` is where its container waits in the arena.
struct Frame {
  std::uint64_t hash = 0;  // of an unlisted name
  std::uint32_t rule = 0;  // of a value, or the part that `phase` belongs to
  std::uint32_t below = kNoLimit;
  std::uint32_t position = 0, name = 0;
  std::uint32_t used_names = kNoLimit;  // the last unlisted name of this object in the arena
  std::uint16_t containers = 0;         // that are open around the value
  Phase phase = Phase::Value;
  std::uint8_t character = 0;  // progress within a character, or whether a space may come
  NumberProgress number{};
  friend bool operator==(const Frame&, const Frame&) = default;
};

// Reads a text byte by byte and says which bytes may follow. A text is read in all possible ways
// at once; a byte that would need more than kMaxReadings ways is refused.
class Matcher {
 public:
  static constexpr std::size_t kMaxReadings = 256;

  // Where a text has been read to. Cheap to copy; belongs to its matcher and stays valid, so that
  // a caller can return to it.
  class State {
   public:
    // Whether nothing can follow any more, because no byte is allowed.
    bool is_dead() const { return readings_.empty(); }

   private:
    friend class Matcher;
    std::vector<Frame> readings_;
  };

  explicit Matcher(std::shared_ptr<const JsonSchema> schema);

  const State& start() const { return start_; }
  // The state after more bytes; dead if they cannot follow. Throws Error{Resource} for a text of
  // millions of values.
  State advance(const State& state, std::string_view bytes);
  // Whether the text up to here satisfies the schema.
  bool is_accepting(const State& state) const;
  // Whether the text satisfies the schema and nothing can follow.
  bool is_complete(const State& state) const;

  // For walks over many continuations, which reuse `next`: what they put into the arena is
  // forgotten when it is cut back to the mark. States that were reached after it become invalid.
  struct Mark {
    std::size_t frames = 0, names = 0;
  };
  Mark mark() const { return {frames_.size(), names_.size()}; }
  void cut(const Mark& mark);
  void advance_byte(const State& state, std::uint8_t byte, State& next);

  // Equal keys mean equal masks for tokens of at most `longest` bytes: counts that such a token
  // cannot bring to their limits are left out.
  std::string key(const State& state, std::uint32_t longest) const;

  // A reading within a string that is a value or an unlisted name: `room` characters at most may
  // follow, and `missing` at least, with the one that has begun.
  struct InString {
    Frame frame{};
    std::uint32_t room = 0, missing = 0;
    bool is_name() const { return frame.phase == Phase::FreeName; }
  };
  // Splits off such readings.
  struct Parts {
    std::vector<InString> strings;
    State others;
  };
  Parts split(const State& state) const;
  static State state_of(const Frame& reading);
  // The state after the quote that ends the string after any characters. For a name, what follows
  // must not end another one.
  void end_string(const Frame& reading, State& next);
  // Whether the string may end after more bytes as far as its characters matter: not if a name is
  // used.
  bool may_end_after(const Frame& reading, std::string_view bytes) const;

 private:
  struct UsedName {
    std::uint64_t hash = 0;
    std::uint32_t previous = kNoLimit, count = 0;
    friend bool operator==(const UsedName&, const UsedName&) = default;
  };

  void step(Frame frame, std::uint8_t byte, State& next);
  bool step_container(Frame& frame, std::uint8_t byte, State& next);
  void step_value(const Frame& frame, std::uint8_t byte, State& next);
  void step_text(const Frame& frame, std::uint8_t byte, State& next);
  void step_name(Frame frame, std::uint8_t byte, State& next);
  void step_free_name(const Frame& frame, std::uint8_t byte, State& next);
  void begin_name(const Frame& frame, State& next);
  void add(State& next, const Frame& frame);
  void enter(const Frame& container, RuleId rule, bool after_space, State& next);
  Frame leave(const Frame& frame) const;
  bool fits(RuleId rule, int containers) const;
  bool may_name(const ObjectPart& part, const Frame& frame, std::uint32_t node) const;
  bool may_add_names(const ObjectPart& part, const Frame& frame) const;
  bool is_taken(const Frame& frame) const;
  std::uint32_t name_limit(const Frame& frame) const;
  std::uint32_t wait(const Frame& container);
  bool ends_here(const Frame& frame) const;
  void append_key(const Frame& frame, std::uint32_t longest, std::string& key) const;

  std::shared_ptr<const JsonSchema> schema_;
  State start_;
  std::vector<Frame> frames_;
  std::vector<UsedName> names_;
  Mark step_{};  // where the arena ended before the last byte
};

}  // namespace hone::infer::grammar
