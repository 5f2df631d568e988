// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/pattern/nfa.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "hone/core/check.h"
#include "hone/infer/grammar/schema_rules.h"
#include "hone/infer/grammar/schema_value.h"
#include "hone/text/unicode/utf8.h"

namespace hone::infer::grammar {
namespace {

constexpr std::size_t kMostStates = 50'000;
// What strings spell as it is, by the length of its UTF-8.
constexpr std::array<std::pair<char32_t, char32_t>, 7> kPlain = {{{0x20, U'"' - 1},
                                                                  {U'"' + 1, U'\\' - 1},
                                                                  {U'\\' + 1, 0x7f},
                                                                  {0x80, 0x7ff},
                                                                  {0x800, 0xd7ff},
                                                                  {0xe000, 0xffff},
                                                                  {0x10000, 0x10ffff}}};

class NfaBuilder {
 public:
  explicit NfaBuilder(std::string_view pointer) : pointer_(pointer) {}

  Nfa build(const Regex& regex) {
    const CodePoints all = {{0, 0x10ffff}};
    nfa_.start = add_state();
    nfa_.end = add_state();
    add_set(all, nfa_.start, nfa_.start);
    add_set(all, nfa_.end, nfa_.end);
    add(regex, nfa_.start, nfa_.end);
    return std::move(nfa_);
  }

 private:
  std::uint32_t add_state(bool begins_character = true) {
    if (nfa_.states.size() >= kMostStates) {
      refuse_schema(pointer_, "The keyword \"pattern\" takes too many states.");
    }
    nfa_.states.push_back({.begins_character = begins_character});
    return static_cast<std::uint32_t>(nfa_.states.size() - 1);
  }
  void jump(std::uint32_t from, std::uint32_t to, Nfa::Condition when = Nfa::Condition::None) {
    nfa_.states[from].jumps.push_back({when, to});
  }
  void edge(std::uint32_t from, std::uint8_t low, std::uint8_t high, std::uint32_t to) {
    nfa_.states[from].edges.push_back({low, high, to});
  }

  void add(const Regex& regex, std::uint32_t from, std::uint32_t to);
  void add_repeat(const Regex& regex, std::uint32_t from, std::uint32_t to);
  void add_set(const CodePoints& set, std::uint32_t from, std::uint32_t to);
  void add_spelled(char32_t point, std::uint32_t from, std::uint32_t to);
  void add_range(char32_t low, char32_t high, std::uint32_t from, std::uint32_t to);
  void add_bytes(const std::string& first, const std::string& last, std::size_t at,
                 std::uint32_t from, std::uint32_t to);
  std::uint32_t continuation(int bytes, std::uint32_t to);

  const std::string_view pointer_;
  Nfa nfa_;
  // States from which 1, 2, … continuation bytes end a character of the current set.
  std::array<std::uint32_t, 3> continuations_{};
  std::map<std::string, std::uint32_t> escapes_;  // states after the first bytes of escapes
};

void NfaBuilder::add(const Regex& regex, std::uint32_t from, std::uint32_t to) {
  switch (regex.kind) {
    case Regex::Kind::Set:
      return add_set(regex.set, from, to);
    case Regex::Kind::Begin:
      return jump(from, to, Nfa::Condition::Begin);
    case Regex::Kind::End:
      return jump(from, to, Nfa::Condition::End);
    case Regex::Kind::Choice:
      for (const Regex& part : regex.parts) {
        const std::uint32_t begin = add_state();  // so that loops of parts stay apart
        jump(from, begin);
        add(part, begin, to);
      }
      return;
    case Regex::Kind::Repeat:
      return add_repeat(regex, from, to);
    case Regex::Kind::Sequence:
      break;
  }
  for (const Regex& part : regex.parts) {
    const std::uint32_t after = add_state();
    add(part, from, after);
    from = after;
  }
  jump(from, to);
}

void NfaBuilder::add_repeat(const Regex& regex, std::uint32_t from, std::uint32_t to) {
  const Regex& part = regex.parts.front();
  for (std::uint32_t i = 0; i < regex.least; ++i) {
    const std::uint32_t after = add_state();
    add(part, from, after);
    from = after;
  }
  if (regex.most == kNoMost) {
    const std::uint32_t loop = add_state(), after = add_state();
    jump(from, loop);
    add(part, loop, after);
    jump(after, loop);
    return jump(loop, to);
  }
  jump(from, to);
  for (std::uint32_t i = regex.least; i < regex.most; ++i) {
    const std::uint32_t after = add_state();
    add(part, from, after);
    jump(after, to);
    from = after;
  }
}

void NfaBuilder::add_set(const CodePoints& set, std::uint32_t from, std::uint32_t to) {
  continuations_ = {};
  escapes_.clear();
  for (const auto& [low, high] : set) {
    // Characters that strings spell with a backslash.
    for (char32_t point = low; point <= std::min<char32_t>(high, 0x1f); ++point) {
      add_spelled(point, from, to);
    }
    for (const char32_t point : {U'"', U'\\'}) {
      if (point >= low && point <= high) add_spelled(point, from, to);
    }
    for (const auto& [first, last] : kPlain) {
      const char32_t begin = std::max(low, first), end = std::min(high, last);
      if (begin <= end) add_range(begin, end, from, to);
    }
  }
}

// Escapes of one set share their first bytes.
void NfaBuilder::add_spelled(char32_t point, std::uint32_t from, std::uint32_t to) {
  std::string bytes;
  text::append_utf8(bytes, point);
  bytes = spell_string(bytes);
  bytes = bytes.substr(1, bytes.size() - 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    if (i + 1 == bytes.size()) return edge(from, byte, byte, to);
    const auto [at, is_new] = escapes_.try_emplace(bytes.substr(0, i + 1), 0);
    if (is_new) {
      at->second = add_state(false);
      edge(from, byte, byte, at->second);
    }
    from = at->second;
  }
}

// A state from which any `bytes` continuation bytes lead to `to`.
std::uint32_t NfaBuilder::continuation(int bytes, std::uint32_t to) {
  if (bytes == 0) return to;
  std::uint32_t& known = continuations_[static_cast<std::size_t>(bytes - 1)];
  if (known != 0) return known;
  const std::uint32_t after = continuation(bytes - 1, to);
  const std::uint32_t state = add_state(false);
  edge(state, 0x80, 0xbf, after);
  return continuations_[static_cast<std::size_t>(bytes - 1)] = state;
}

// Code points whose UTF-8 has one length.
void NfaBuilder::add_range(char32_t low, char32_t high, std::uint32_t from, std::uint32_t to) {
  std::string first, last;
  text::append_utf8(first, low);
  text::append_utf8(last, high);
  add_bytes(first, last, 0, from, to);
}

// The code points from `first` to `last`, without their first `at` bytes, which agree.
void NfaBuilder::add_bytes(const std::string& first, const std::string& last, std::size_t at,
                           std::uint32_t from, std::uint32_t to) {
  auto low = static_cast<std::uint8_t>(first[at]), high = static_cast<std::uint8_t>(last[at]);
  const std::size_t rest = first.size() - at - 1;
  if (rest == 0) return edge(from, low, high, to);
  const auto add_part = [&](std::uint8_t byte, const std::string& begin, const std::string& end) {
    const std::uint32_t after = add_state(false);
    edge(from, byte, byte, after);
    add_bytes(begin, end, at + 1, after, to);
  };
  if (low == high) return add_part(low, first, last);
  // The end of the first block, whole blocks, and the beginning of the last one.
  const std::string least(rest, '\x80'), most(rest, '\xbf');
  if (first.substr(at + 1) != least) {
    add_part(low, first, first.substr(0, at + 1) + most);
    ++low;
  }
  if (last.substr(at + 1) != most) {
    add_part(high, last.substr(0, at + 1) + least, last);
    --high;
  }
  if (low <= high) edge(from, low, high, continuation(static_cast<int>(rest), to));
}

}  // namespace

Nfa make_nfa(const Regex& regex, std::string_view pointer) {
  return NfaBuilder(pointer).build(regex);
}

}  // namespace hone::infer::grammar
