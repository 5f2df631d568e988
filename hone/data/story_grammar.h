// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/core/philox.h"
#include "hone/data/attribute_grammar.h"
#include "hone/data/story_text.h"

namespace hone::data {

// Ends every story. A stream is story, separator, story, separator, …; a story holds no separator.
inline constexpr std::string_view kStorySeparator = "\n";

enum class StoryFaultKind {
  Ungrammatical,  // no sentence of the grammar, whatever the story
  Inconsistent,   // a sentence of the grammar that cannot stand here in this story
  Unfinished,     // a separator before the story's end
};
std::string_view name_of(StoryFaultKind kind);

struct StoryFault {
  StoryFaultKind kind = StoryFaultKind::Ungrammatical;
  Index begin = 0;   // byte where the sentence starts in the recognized text
  Index offset = 0;  // first byte that no derivation explains
  std::string sentence;
};

// What a recognizer says of a text. A last sentence without an end (a cut) is counted nowhere else.
struct StoryVerdict {
  Index sentences = 0;    // whole sentences
  Index grammatical = 0;  // of these, sentences of the grammar
  Index valid = 0;        // of these, sentences that also agree with the story so far
  Index stories = 0;      // texts between separators, the last one included
  Index finished = 0;     // of these, stories whose every sentence is valid up to the end
  bool cut = false;       // the text stops inside a sentence
  std::optional<StoryFault> first_fault;

  double valid_share() const;  // 1 when there is no sentence
};

// Source of endless short stories whose exact probability is known (docs/story-grammar.md).
class StoryGrammar {
 public:
  // Throws as AttributeGrammar does.
  explicit StoryGrammar(std::string_view source = kStoryText);

  // One story, separator not included.
  std::string generate(PhiloxStream& random) const;

  // Judges a text that begins where a story begins. After a fault it goes on with what the story
  // has established so far, so that one wrong sentence costs one sentence.
  StoryVerdict recognize(std::string_view text) const;

  // log2 of the probability that a stream begins with `text`, summed over derivations;
  // -infinity when none does. -log2_probability / bytes is the bits per byte no model can beat on
  // it.
  double log2_probability(std::string_view text) const;

  // Entropy of one story in bits (the separator adds none), in closed form.
  double entropy_bits() const { return grammar_.entropy_bits(); }

  const AttributeGrammar& grammar() const { return grammar_; }

 private:
  AttributeGrammar grammar_;
};

// Story `index` of an endless series; the held-out series shares no random number with the other.
enum class StorySeries { Train, HeldOut };
std::string generate_story(const StoryGrammar& grammar, std::uint64_t seed, StorySeries series,
                           Index index);
// Stories 0 … count-1, each followed by the separator.
std::string generate_stories(const StoryGrammar& grammar, std::uint64_t seed, StorySeries series,
                             Index count);

}  // namespace hone::data
