// SPDX-License-Identifier: Apache-2.0
#include "hone/text/unicode/nfc.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "hone/text/unicode/nfc_tables.h"
#include "hone/text/unicode/utf8.h"

namespace hone::text {
namespace {

// Hangul syllables are computed arithmetically (Unicode 15, section 3.12).
constexpr char32_t kSyllableBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161,
                   kTrailBase = 0x11A7;
constexpr char32_t kVowels = 21, kTrails = 28, kLeads = 19, kSyllables = kLeads * kVowels * kTrails;

struct Mark {
  char32_t code;
  std::uint8_t combining_class;
};

std::uint8_t combining_class(char32_t code) {
  const CombiningRange* end = kCombiningRanges + kCombiningRangeCount;
  const CombiningRange* range = std::lower_bound(
      kCombiningRanges, end, code, [](const CombiningRange& r, char32_t c) { return r.last < c; });
  return range != end && range->first <= code ? range->combining_class : std::uint8_t{0};
}

void decompose(char32_t code, std::vector<Mark>& out) {
  if (code >= kSyllableBase && code < kSyllableBase + kSyllables) {
    const char32_t syllable = code - kSyllableBase;
    out.push_back({kLeadBase + syllable / (kVowels * kTrails), 0});
    out.push_back({kVowelBase + syllable / kTrails % kVowels, 0});
    if (syllable % kTrails != 0) out.push_back({kTrailBase + syllable % kTrails, 0});
    return;
  }
  const Decomposition* end = kDecompositions + kDecompositionCount;
  const Decomposition* entry = std::lower_bound(
      kDecompositions, end, code, [](const Decomposition& d, char32_t c) { return d.code < c; });
  if (entry == end || entry->code != code) {
    out.push_back({code, combining_class(code)});
    return;
  }
  decompose(entry->first, out);
  if (entry->second != 0) decompose(entry->second, out);
}

using Compositions = std::unordered_map<std::uint64_t, char32_t>;

std::uint64_t key_of(char32_t first, char32_t second) {
  return (std::uint64_t{first} << 32) | second;
}

const Compositions& compositions() {
  static const Compositions table = [] {
    Compositions made;
    const char32_t* end = kCompositionExclusions + kCompositionExclusionCount;
    for (int i = 0; i < kDecompositionCount; ++i) {
      const Decomposition& d = kDecompositions[i];
      if (d.second == 0 || std::binary_search(kCompositionExclusions, end, d.code)) continue;
      made.emplace(key_of(d.first, d.second), d.code);
    }
    return made;
  }();
  return table;
}

// Returns 0 if the two do not compose.
char32_t compose(char32_t first, char32_t second) {
  if (first >= kLeadBase && first < kLeadBase + kLeads && second >= kVowelBase &&
      second < kVowelBase + kVowels) {
    return kSyllableBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTrails;
  }
  if (first >= kSyllableBase && first < kSyllableBase + kSyllables &&
      (first - kSyllableBase) % kTrails == 0 && second > kTrailBase &&
      second < kTrailBase + kTrails) {
    return first + (second - kTrailBase);
  }
  const auto found = compositions().find(key_of(first, second));
  return found == compositions().end() ? 0 : found->second;
}

// Canonical ordering, then canonical composition (UAX #15, D117), in place.
void compose_run(std::vector<Mark>& marks) {
  for (std::size_t i = 0; i < marks.size();) {
    std::size_t end = i + 1;
    if (marks[i].combining_class != 0) {
      while (end < marks.size() && marks[end].combining_class != 0) ++end;
      std::stable_sort(
          marks.begin() + static_cast<std::ptrdiff_t>(i),
          marks.begin() + static_cast<std::ptrdiff_t>(end),
          [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
    }
    i = end;
  }
  std::ptrdiff_t starter = -1;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const Mark mark = marks[i];
    const bool adjacent = starter >= 0 && static_cast<std::size_t>(starter) + 1 == kept;
    const bool blocked =
        !adjacent && (mark.combining_class == 0 ||
                      (kept > 0 && marks[kept - 1].combining_class >= mark.combining_class));
    const char32_t composed = starter < 0 || blocked ? 0 : compose(marks[starter].code, mark.code);
    if (composed != 0) {
      marks[starter].code = composed;
      continue;
    }
    if (mark.combining_class == 0) starter = static_cast<std::ptrdiff_t>(kept);
    marks[kept++] = mark;
  }
  marks.resize(kept);
}

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string out;
  std::vector<Mark> marks;
  const auto flush = [&] {
    compose_run(marks);
    for (const Mark& mark : marks) append_utf8(out, mark.code);
    marks.clear();
  };
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text.substr(0, 4));
    if (c.bytes == 0) {
      flush();
      out.push_back(text[0]);
    } else {
      // ASCII characters do not compose with what precedes them, so the run is complete.
      if (c.value < 0x80) flush();
      decompose(c.value, marks);
    }
    text.remove_prefix(static_cast<std::size_t>(std::max(1, c.bytes)));
  }
  flush();
  return out;
}

}  // namespace hone::text
