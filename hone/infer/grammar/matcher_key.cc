// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/infer/grammar/character.h"
#include "hone/infer/grammar/matcher.h"

namespace hone::infer::grammar {
namespace {

template <class Number>
void append_number(std::string& key, Number number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// How far `count` is from the limits, as far as one token can matter.
void append_distance(std::string& key, const CountRange& range, std::uint32_t count,
                     std::uint32_t longest) {
  const std::uint32_t missing = range.low > count ? range.low - count : 0;
  const std::uint32_t room = range.high > count ? range.high - count : 0;
  append_number(key, std::min(missing, longest + 1));
  append_number(key, std::min(room, longest + 1));
}

}  // namespace

// The frames of each reading from the innermost one out. How many containers are open follows from
// their number.
std::string Matcher::key(const State& state, std::uint32_t longest) const {
  std::string key;
  for (const Frame& reading : state.readings_) {
    append_key(reading, longest, key);
    for (std::uint32_t i = reading.below; i != kNoLimit; i = frames_[i].below) {
      append_key(frames_[i], longest, key);
    }
    key += '\xff';
  }
  return key;
}

void Matcher::append_key(const Frame& frame, std::uint32_t longest, std::string& key) const {
  key += static_cast<char>(frame.phase);
  key += static_cast<char>(frame.character);
  append_number(key, frame.rule);
  switch (frame.phase) {
    case Phase::Done:
    case Phase::Value:
      return;
    case Phase::Literal:
      return append_number(key, frame.position);
    case Phase::Text:
      return append_distance(key, schema_->text(frame.rule), frame.position, longest);
    case Phase::Pattern: {
      // What is missing after a token must fit, too.
      const PatternPart& part = schema_->pattern(frame.rule);
      append_number(key, frame.position);
      return append_distance(key, {0, part.most}, frame.name, longest + part.most_missing);
    }
    case Phase::Number:
      for (const int part :
           {int{frame.number.whole}, int{frame.number.fraction}, int{frame.number.low},
            int{frame.number.high},
            frame.number.negative + 2 * frame.number.has_point + 4 * frame.number.leading_zero}) {
        key += static_cast<char>(part);
      }
      return;
    case Phase::ArrayOpen:
    case Phase::ArrayNext: {
      const ArrayShape& shape = schema_->array(frame.rule).shape;
      const auto prefix = static_cast<std::uint32_t>(shape.prefix.size());
      append_number(key, std::min(frame.position, prefix));
      return append_distance(key, shape.count, frame.position, longest);
    }
    default:
      break;
  }
  append_number(key, frame.position);
  append_number(key, frame.name);
  append_number(key, frame.hash);
  for (std::uint32_t i = frame.used_names; i != kNoLimit; i = names_[i].previous) {
    append_number(key, names_[i].hash);
  }
}

Matcher::State Matcher::state_of(const Frame& reading) {
  State state;
  state.readings_.push_back(reading);
  return state;
}

// The parts that may begin, if one has ended; the part itself otherwise.
void Matcher::split_script(const Frame& frame, Parts& parts) const {
  const std::vector<ScriptNode>& script = schema_->script();
  const auto take = [&](const Frame& begun) {
    const bool is_free = script[begun.rule].kind == OutputPart::Kind::Free;
    (is_free ? parts.free : parts.others.readings_).push_back(begun);
  };
  if (frame.position != kFinished) return take(frame);
  for (const std::uint32_t next : script[frame.rule].next) {
    take({.rule = next, .phase = Phase::Script});
  }
}

Matcher::Parts Matcher::split(const State& state) const {
  Parts parts;
  for (const Frame& frame : state.readings_) {
    if (frame.phase == Phase::Text) {
      const CountRange& count = schema_->text(frame.rule);
      parts.strings.push_back({.frame = frame,
                               .room = count.high - frame.position,
                               .missing = count.low - std::min(count.low, frame.position)});
    } else if (frame.phase == Phase::FreeName) {
      parts.strings.push_back({.frame = frame, .room = name_limit(frame) - frame.name});
    } else if (frame.phase == Phase::Script) {
      split_script(frame, parts);
    } else {
      parts.others.readings_.push_back(frame);
      const auto ended = ended_node(frame);  // of a number that may end here
      if (ended)
        split_script({.rule = *ended, .position = kFinished, .phase = Phase::Script}, parts);
    }
  }
  return parts;
}

}  // namespace hone::infer::grammar
