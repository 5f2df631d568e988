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

// Ends every story. A stream is story, separator, story, separator, …; stories contain no
// separator.
inline constexpr std::string_view kStorySeparator = "\n";

enum class StoryFaultKind {
  Ungrammatical,  // not a sentence of the grammar
  Inconsistent,   // a sentence of the grammar that does not fit here
  Unfinished,     // a separator before the end of the story
};
std::string_view name_of(StoryFaultKind kind);

struct StoryFault {
  StoryFaultKind kind = StoryFaultKind::Ungrammatical;
  Index begin = 0;   // where the sentence starts in the text, in bytes
  Index offset = 0;  // the first byte that no derivation explains
  std::string sentence;
};

// The result of recognizing a text. A last sentence without an end only sets `cut`.
struct StoryVerdict {
  Index sentences = 0;    // complete sentences
  Index grammatical = 0;  // sentences of the grammar among these
  Index valid = 0;        // those among these that also fit the story so far
  Index stories = 0;      // texts between separators, including the last one
  Index finished = 0;     // those among these that are valid and complete
  bool cut = false;       // whether the text ends within a sentence
  std::optional<StoryFault> first_fault;

  double valid_share() const;  // 1 if there is no sentence
};

// An endless source of short stories with exactly known probabilities (docs/story-grammar.md).
class StoryGrammar {
 public:
  // Throws as AttributeGrammar does.
  explicit StoryGrammar(std::string_view source = kStoryText);

  // Draws one story, without the separator.
  std::string generate(PhiloxStream& random) const;

  // Judges a text that begins at the start of a story. After a fault it continues with the facts
  // that the story has established so far, so that one wrong sentence does not invalidate the next
  // ones.
  StoryVerdict recognize(std::string_view text) const;

  // log2 of the probability that a stream begins with `text`, summed over derivations; -infinity if
  // there is none. On average over stories, no model can achieve fewer bits per byte than
  // -log2_probability / bytes.
  double log2_probability(std::string_view text) const;

  // The entropy of one story in bits, in closed form. The separator adds none.
  double entropy_bits() const { return grammar_.entropy_bits(); }

  const AttributeGrammar& grammar() const { return grammar_; }

 private:
  AttributeGrammar grammar_;
};

// What commands call the stories of the built-in grammar where they otherwise take a file.
inline constexpr std::string_view kStoriesName = "stories";

// Story `index` of an endless series. The two series share no random numbers.
enum class StorySeries { Train, HeldOut };
std::string generate_story(const StoryGrammar& grammar, std::uint64_t seed, StorySeries series,
                           Index index);

}  // namespace hone::data
