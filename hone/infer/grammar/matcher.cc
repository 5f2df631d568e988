// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/matcher.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/infer/grammar/character.h"
#include "hone/infer/grammar/number_progress.h"

namespace hone::infer::grammar {
namespace {

constexpr std::uint8_t kSpaceMayCome = 1;   // in Frame::character, outside of strings
constexpr std::size_t kMaxArena = 250'000;  // 14 MB of frames, and as many names

}  // namespace

Matcher::Matcher(std::shared_ptr<const JsonSchema> schema) : schema_(std::move(schema)) {
  if (schema_->script().empty()) {
    start_.readings_.push_back({.rule = schema_->root()});
  } else {
    start_.readings_.push_back(finish_node(0));
  }
}

Matcher::State Matcher::advance(const State& state, std::string_view bytes) {
  if (frames_.size() > kMaxArena || names_.size() > kMaxArena) {
    fail(ErrorCategory::Resource, "JSON schema",
         concat("The text has more than ", kMaxArena, " values."));
  }
  State current = state, next;
  for (const char byte : bytes) {
    advance_byte(current, static_cast<std::uint8_t>(byte), next);
    std::swap(current, next);
    if (current.is_dead()) break;
  }
  return current;
}

void Matcher::advance_byte(const State& state, std::uint8_t byte, State& next) {
  next.readings_.clear();
  step_ = mark();
  for (const Frame& frame : state.readings_) {
    // First what most of a walk over a vocabulary is spent on.
    if (frame.phase == Phase::Text) {
      step_text(frame, byte, next);
    } else if (frame.phase == Phase::FreeName) {
      step_free_name(frame, byte, next);
    } else if (frame.phase == Phase::Pattern) {
      step_pattern(frame, byte, next);
    } else {
      step(frame, byte, next);
    }
    if (next.readings_.size() <= kMaxReadings) continue;
    next.readings_.clear();
    return;
  }
}

void Matcher::cut(const Mark& mark) {
  frames_.resize(mark.frames);
  names_.resize(mark.names);
  step_ = mark;
}

bool Matcher::is_accepting(const State& state) const {
  return std::ranges::any_of(state.readings_,
                             [this](const Frame& frame) { return ends_text(frame); });
}

bool Matcher::is_complete(const State& state) const {
  return !state.is_dead() && std::ranges::all_of(state.readings_, [](const Frame& frame) {
    return frame.phase == Phase::Done;
  });
}

// The node of a script whose part has ended, or may end here.
std::optional<std::uint32_t> Matcher::ended_node(const Frame& frame) const {
  if (frame.phase == Phase::Script) {
    return frame.position == kFinished ? std::optional(frame.rule) : std::nullopt;
  }
  if (frame.below == kNoLimit || !ends_here(frame)) return std::nullopt;
  const Frame& around = frames_[frame.below];
  return around.phase == Phase::Script ? std::optional(around.rule) : std::nullopt;
}

bool Matcher::ends_text(const Frame& frame) const {
  if (frame.phase == Phase::Done) return true;
  const std::vector<ScriptNode>& script = schema_->script();
  if (const auto ended = ended_node(frame)) {
    const ScriptNode& node = script[*ended];
    return node.ends ||
           std::ranges::any_of(node.next, [&](std::uint32_t next) { return script[next].may_end; });
  }
  if (frame.phase == Phase::Script) return script[frame.rule].may_end;
  return frame.below == kNoLimit && ends_here(frame);
}

// A number or literal that is complete, although more of it may follow.
bool Matcher::ends_here(const Frame& frame) const {
  if (frame.phase == Phase::Number) {
    const NumberPart& part = schema_->number(frame.rule);
    return can_end(frame.number.negative ? part.negative : part.positive, frame.number);
  }
  return frame.phase == Phase::Literal && schema_->rule(frame.rule).literals.ends(frame.position);
}

void Matcher::add(State& next, const Frame& frame) {
  auto& readings = next.readings_;
  if (std::ranges::find(readings, frame) == readings.end()) readings.push_back(frame);
}

// The container after its value has ended, or the end of the text.
Frame Matcher::leave(const Frame& frame) const {
  if (frame.below == kNoLimit) return {.phase = Phase::Done};
  Frame container = frames_[frame.below];
  if (container.phase == Phase::Script) return finish_node(container.rule);
  const bool is_array = container.phase == Phase::ArrayOpen || container.phase == Phase::ArrayNext;
  if (is_array) ++container.position;
  container.phase = is_array ? Phase::ArrayNext : Phase::ObjectNext;
  return container;
}

// After the end of a part of a script.
Frame Matcher::finish_node(std::uint32_t node) const {
  if (schema_->script()[node].next.empty()) return {.phase = Phase::Done};
  return {.rule = node, .position = kFinished, .phase = Phase::Script};
}

bool Matcher::fits(RuleId rule, int containers) const {
  return containers + schema_->rule(rule).height <= kMaxContainers;
}

// Puts a container into the arena, once for all readings of one byte: those that then agree are
// one.
std::uint32_t Matcher::wait(const Frame& container) {
  const auto begin = frames_.begin() + static_cast<std::ptrdiff_t>(step_.frames);
  const auto found = std::find(begin, frames_.end(), container);
  const auto index = static_cast<std::uint32_t>(found - frames_.begin());
  if (found == frames_.end()) frames_.push_back(container);
  return index;
}

void Matcher::enter(const Frame& container, RuleId rule, bool after_space, State& next) {
  add(next, {.rule = rule,
             .below = wait(container),
             .containers = static_cast<std::uint16_t>(container.containers),
             .character = after_space ? kSpaceMayCome : std::uint8_t{0}});
}

// A number or literal may end before this byte, which then belongs to its container.
void Matcher::step(Frame frame, std::uint8_t byte, State& next) {
  if (frame.phase == Phase::Number) {
    const NumberPart& part = schema_->number(frame.rule);
    Frame longer = frame;
    const auto& range = frame.number.negative ? part.negative : part.positive;
    if (read_digit(range, byte, longer.number)) add(next, longer);
  } else if (frame.phase == Phase::Literal) {
    const ByteTrie& literals = schema_->rule(frame.rule).literals;
    if (const auto child = literals.child(frame.position, byte)) {
      Frame longer = frame;
      longer.position = *child;
      add(next, literals.has_children(*child) ? longer : leave(longer));
    }
  }
  if (frame.phase == Phase::Number || frame.phase == Phase::Literal) {
    if (frame.below == kNoLimit || !ends_here(frame)) return;
    frame = leave(frame);
  }
  if (frame.phase == Phase::Script) return step_script(frame, byte, next);
  if (step_container(frame, byte, next)) return;
  if (frame.phase == Phase::Value) return step_value(frame, byte, next);
  step_name(frame, byte, next);
}

void Matcher::step_script(const Frame& frame, std::uint8_t byte, State& next) {
  const ScriptNode& node = schema_->script()[frame.rule];
  if (frame.position == kFinished) {
    for (const std::uint32_t follower : node.next) {
      step_script({.rule = follower, .phase = Phase::Script}, byte, next);
    }
    return;
  }
  Frame after = frame;
  switch (node.kind) {
    case OutputPart::Kind::Text:
      if (static_cast<std::uint8_t>(node.text[frame.position]) != byte) return;
      ++after.position;
      return add(next, after.position == node.text.size() ? finish_node(frame.rule) : after);
    case OutputPart::Kind::Space:
      if (byte != ' ' && byte != '\n') return;
      ++after.position;
      if (after.position < kMaxSpaces) add(next, after);
      return add(next, finish_node(frame.rule));
    case OutputPart::Kind::Value:
      return step_value({.rule = node.rule, .below = wait(frame)}, byte, next);
    case OutputPart::Kind::Free:
      after.position = next_match(node, frame.position, byte);
      return add(next, after.position == node.text.size() ? finish_node(frame.rule) : after);
    case OutputPart::Kind::Token:
      return;
  }
}

std::vector<text::TokenId> Matcher::next_tokens(const State& state) const {
  const std::vector<ScriptNode>& script = schema_->script();
  std::vector<text::TokenId> tokens;
  const auto take = [&](std::uint32_t node) {
    if (script[node].token >= 0) tokens.push_back(script[node].token);
  };
  for (const Frame& frame : state.readings_) {
    if (const auto ended = ended_node(frame)) {
      std::ranges::for_each(script[*ended].next, take);
    } else if (frame.phase == Phase::Script) {
      take(frame.rule);
    }
  }
  return tokens;
}

Matcher::State Matcher::advance_token(const State& state, text::TokenId id, bool has_text) const {
  State after;
  const auto enter = [&](std::uint32_t index, std::uint32_t matched) {
    const ScriptNode& node = schema_->script()[index];
    const bool is_free = node.kind == OutputPart::Kind::Free;
    const bool takes_token = is_free || node.kind == OutputPart::Kind::Token;
    if (takes_token && node.token == id) {
      add(after, finish_node(index));
    } else if (is_free && !has_text) {
      add(after, {.rule = index, .position = matched, .phase = Phase::Script});
    }
  };
  for (const Frame& frame : state.readings_) {
    if (const auto ended = ended_node(frame)) {
      for (const std::uint32_t node : schema_->script()[*ended].next) enter(node, 0);
    } else if (frame.phase == Phase::Script) {
      enter(frame.rule, frame.position == kLost ? kLost : 0);
    }
  }
  return after;
}

// What comes between values. Returns whether the phase is one of those.
bool Matcher::step_container(Frame& frame, std::uint8_t byte, State& next) {
  switch (frame.phase) {
    case Phase::ArrayOpen:
    case Phase::ArrayNext: {
      const ArrayShape& shape = schema_->array(frame.rule).shape;
      const RuleId rule = shape.rule_at(frame.position);
      const bool more = frame.position < shape.count.high && fits(rule, frame.containers);
      if (byte == ']') {
        if (frame.position >= shape.count.low) add(next, leave(frame));
      } else if (more && frame.phase == Phase::ArrayNext) {
        if (byte == ',') enter(frame, rule, true, next);
      } else if (more) {
        step_value({.rule = rule, .below = wait(frame), .containers = frame.containers}, byte,
                   next);
      }
      return true;
    }
    case Phase::ObjectOpen:
    case Phase::ObjectNext:
    case Phase::ObjectComma: {
      const ObjectPart& part = schema_->object(frame.rule);
      const bool may_close = frame.phase != Phase::ObjectComma;
      if (byte == '}' && may_close && frame.position >= part.required_end) add(next, leave(frame));
      if (byte == '"' && frame.phase != Phase::ObjectNext) begin_name(frame, next);
      Frame after = frame;
      after.phase = Phase::ObjectComma;
      after.character = kSpaceMayCome;
      if (byte == ',' && frame.phase == Phase::ObjectNext &&
          (may_name(part, frame, 0) || may_add_names(part, frame))) {
        add(next, after);
      }
      after.character = 0;
      if (byte == ' ' && !may_close && frame.character == kSpaceMayCome) add(next, after);
      return true;
    }
    case Phase::Colon: {
      const ObjectPart& part = schema_->object(frame.rule);
      const bool listed = frame.name != kNoLimit;
      const RuleId rule = listed ? part.properties[frame.name].rule : part.additional;
      if (byte != ':') return true;
      if (listed) frame.position = frame.name + 1;
      frame.name = 0;
      enter(frame, rule, true, next);
      return true;
    }
    case Phase::Done:
      return true;
    default:
      return false;
  }
}

void Matcher::step_value(const Frame& frame, std::uint8_t byte, State& next) {
  const ValueRule& rule = schema_->rule(frame.rule);
  Frame begun = frame;
  begun.character = 0;
  if (byte == ' ' && frame.character == kSpaceMayCome) add(next, begun);
  if (!rule.literals.empty()) {
    if (const auto child = rule.literals.child(0, byte)) {
      begun.phase = Phase::Literal;
      begun.position = *child;
      add(next, rule.literals.has_children(*child) ? begun : leave(begun));
      begun.position = 0;
    }
  }
  const auto open = [&](Phase phase, std::uint32_t part, int containers) {
    begun.phase = phase;
    begun.rule = part;
    begun.containers = static_cast<std::uint16_t>(frame.containers + containers);
    add(next, begun);
  };
  if (byte == '"') {
    for (const std::uint32_t part : rule.texts) open(Phase::Text, part, 0);
    for (const std::uint32_t part : rule.patterns) open(Phase::Pattern, part, 0);
  } else if (byte == '[') {
    for (const std::uint32_t part : rule.arrays) {
      const bool room = frame.containers + schema_->array(part).height <= kMaxContainers;
      if (room) open(Phase::ArrayOpen, part, 1);
    }
  } else if (byte == '{') {
    for (const std::uint32_t part : rule.objects) {
      const bool room = frame.containers + schema_->object(part).height <= kMaxContainers;
      if (room) open(Phase::ObjectOpen, part, 1);
    }
  } else if (byte == '-' || (byte >= '0' && byte <= '9')) {
    for (const std::uint32_t part : rule.numbers) {
      const NumberPart& number = schema_->number(part);
      begun.number = {.negative = byte == '-'};
      const MagnitudeRange& range = byte == '-' ? number.negative : number.positive;
      if (!range.possible) continue;
      if (byte == '-' || read_digit(range, byte, begun.number)) open(Phase::Number, part, 0);
    }
  }
}

// Readings that differ still do after one more byte, so that none needs to be merged.
void Matcher::step_text(const Frame& frame, std::uint8_t byte, State& next) {
  const CountRange& count = schema_->text(frame.rule);
  if (frame.character == kCharacterStart) {
    if (byte == '"') {
      if (frame.position >= count.low) end_string(frame, next);
      return;
    }
    if (frame.position >= count.high) return;
  }
  const std::uint8_t character = next_in_character(frame.character, byte);
  if (character == kNoCharacter) return;
  Frame& after = next.readings_.emplace_back(frame);
  after.character = character;
  after.position += character == kCharacterStart;
}

void Matcher::step_pattern(const Frame& frame, std::uint8_t byte, State& next) {
  const PatternPart& part = schema_->pattern(frame.rule);
  const Automaton& automaton = part.automaton;
  if (byte == '"' && automaton.begins_character(frame.position)) {
    if (automaton.accepts(frame.position)) add(next, leave(frame));
    return;
  }
  const Automaton::State state = automaton.next(frame.position, byte);
  if (state == Automaton::kDead) return;
  const std::uint32_t count = frame.name + (automaton.begins_character(state) ? 1 : 0);
  if (part.most != kNoLimit && count + part.missing[state] > part.most) return;
  Frame& after = next.readings_.emplace_back(frame);
  after.position = state;
  after.name = count;
}

// Both kinds of names begin with the same quote.
void Matcher::begin_name(const Frame& frame, State& next) {
  const ObjectPart& part = schema_->object(frame.rule);
  Frame name = frame;
  name.character = kCharacterStart;
  name.name = 0;
  name.phase = Phase::Name;
  if (may_name(part, frame, 0)) add(next, name);
  name.phase = Phase::FreeName;
  name.hash = kNameHashSeed;
  if (may_add_names(part, frame)) add(next, name);
}

// Whether a property below this node of the trie may come next: one after the last property, up to
// the next required one, whose value has room.
bool Matcher::may_name(const ObjectPart& part, const Frame& frame, std::uint32_t node) const {
  if (frame.position >= part.properties.size()) return false;
  const std::uint32_t last = part.last_open[frame.position];
  for (std::uint32_t i = part.names.begin(node); i < part.names.end(node); ++i) {
    const std::uint32_t property = part.order[i];
    if (property >= frame.position && property <= last &&
        fits(part.properties[property].rule, frame.containers)) {
      return true;
    }
  }
  return false;
}

bool Matcher::may_add_names(const ObjectPart& part, const Frame& frame) const {
  const std::uint32_t used = frame.used_names == kNoLimit ? 0 : names_[frame.used_names].count;
  return frame.position >= part.required_end && used < kMaxFreeNames &&
         fits(part.additional, frame.containers);
}

void Matcher::step_name(Frame frame, std::uint8_t byte, State& next) {
  const ObjectPart& part = schema_->object(frame.rule);
  const auto child = part.names.child(frame.name, byte);
  if (!child || !may_name(part, frame, *child)) return;
  frame.name = *child;
  if (part.names.ends(*child)) {  // with its quote, and so without children
    frame.name = part.order[part.names.begin(*child)];
    frame.phase = Phase::Colon;
    frame.character = 0;
  }
  add(next, frame);
}

void Matcher::step_free_name(const Frame& frame, std::uint8_t byte, State& next) {
  if (frame.character == kCharacterStart) {
    if (byte == '"') {
      if (!is_taken(frame)) end_string(frame, next);
      return;
    }
    if (frame.name >= name_limit(frame)) return;
  }
  const std::uint8_t character = next_in_plain_character(frame.character, byte);
  if (character == kNoCharacter) return;
  Frame& after = next.readings_.emplace_back(frame);
  after.character = character;
  after.hash = extend_name_hash(frame.hash, byte);
  after.name += character == kCharacterStart;
}

void Matcher::end_string(const Frame& frame, State& next) {
  if (frame.phase == Phase::Text) return add(next, leave(frame));
  const std::uint32_t used = frame.used_names == kNoLimit ? 0 : names_[frame.used_names].count;
  const UsedName name{frame.hash, frame.used_names, used + 1};
  const auto begin = names_.begin() + static_cast<std::ptrdiff_t>(step_.names);
  const auto found = std::find(begin, names_.end(), name);
  Frame after = frame;
  after.used_names = static_cast<std::uint32_t>(found - names_.begin());
  if (found == names_.end()) names_.push_back(name);
  after.position = static_cast<std::uint32_t>(schema_->object(frame.rule).properties.size());
  after.name = kNoLimit;
  after.character = 0;
  after.hash = 0;
  after.phase = Phase::Colon;
  add(next, after);
}

bool Matcher::may_end_after(const Frame& reading, std::string_view bytes) const {
  if (reading.phase == Phase::Text) return true;
  Frame name = reading;
  for (const char byte : bytes) {
    name.hash = extend_name_hash(name.hash, static_cast<std::uint8_t>(byte));
  }
  return !is_taken(name);
}

// Each unlisted name may be longer than all before it and those that the schema lists, so that one
// at its limit is not used yet and can end.
std::uint32_t Matcher::name_limit(const Frame& frame) const {
  const std::uint32_t used = frame.used_names == kNoLimit ? 0 : names_[frame.used_names].count;
  return std::max(kMaxFreeNamePoints, schema_->object(frame.rule).longest_name + 1) + used;
}

// Names are compared by 64-bit hashes of their only spelling, so that a name may, very rarely, be
// refused without need, but none occurs twice.
bool Matcher::is_taken(const Frame& frame) const {
  if (schema_->object(frame.rule).name_hashes.contains(frame.hash)) return true;
  for (std::uint32_t i = frame.used_names; i != kNoLimit; i = names_[i].previous) {
    if (names_[i].hash == frame.hash) return true;
  }
  return false;
}

}  // namespace hone::infer::grammar
