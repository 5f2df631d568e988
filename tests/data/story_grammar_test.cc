// SPDX-License-Identifier: Apache-2.0
#include "hone/data/story_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>
#include <set>

#include "hone/data/sentence.h"
#include "hone/data/text_source.h"

namespace hone::data {
namespace {

const StoryGrammar& stories() {
  static const StoryGrammar grammar;
  return grammar;
}

std::string story(Index index) { return generate_story(stories(), 3, StorySeries::Train, index); }

std::vector<std::size_t> find_word(const std::string& text, const std::string& word) {
  const auto is_letter = [&](std::size_t at) {
    return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0;
  };
  std::vector<std::size_t> found;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) found.push_back(at);
  }
  return found;
}

TEST(StoryGrammar, no_text_has_two_derivations) {
  const auto witness = stories().grammar().find_ambiguity();
  EXPECT_FALSE(witness) << *witness;
}

TEST(StoryGrammar, accepts_every_story_it_tells) {
  const std::string text =
      join_documents(generate_story_corpus(stories(), 5, {.train = 0, .held_out = 2000}).held_out);
  const StoryVerdict verdict = stories().recognize(text);
  EXPECT_EQ(verdict.stories, 2000);
  EXPECT_EQ(verdict.finished, 2000);
  EXPECT_EQ(verdict.valid, verdict.sentences);
  EXPECT_FALSE(verdict.first_fault) << verdict.first_fault->sentence;
  EXPECT_GT(verdict.sentences, 2000 * 8);
}

// Mean of -log2 P over n stories: the standard error comes from the sample itself; a correct
// closed form fails with probability below 1e-6.
TEST(StoryGrammar, mean_surprise_matches_the_closed_form_entropy) {
  constexpr int kStories = 20000;
  double sum = 0, squares = 0;
  for (Index i = 0; i < kStories; ++i) {
    const double bits =
        -stories().log2_probability(generate_story(stories(), 8, StorySeries::Train, i) + "\n");
    sum += bits;
    squares += bits * bits;
  }
  const double mean = sum / kStories;
  const double error = std::sqrt((squares / kStories - mean * mean) / kStories);
  EXPECT_NEAR(mean, stories().entropy_bits(), 5 * error);
  EXPECT_LT(error, 0.1);
}

TEST(StoryGrammar, probability_of_a_stream_is_the_product_of_its_stories) {
  const std::string first = story(0) + "\n", second = story(1) + "\n";
  EXPECT_DOUBLE_EQ(stories().log2_probability(first + second),
                   stories().log2_probability(first) + stories().log2_probability(second));
  EXPECT_EQ(stories().log2_probability("Once upon a time, a dog.\n"),
            -std::numeric_limits<double>::infinity());
}

TEST(StoryGrammar, probability_of_a_prefix_never_grows) {
  const std::string text = story(2) + "\n";
  double last = 0;
  for (std::size_t length = 1; length <= text.size(); ++length) {
    const double bits = stories().log2_probability(text.substr(0, length));
    EXPECT_LE(bits, last + 1e-12);
    last = bits;
  }
  EXPECT_LT(last, -30);
}

TEST(StoryGrammar, a_story_cut_at_a_sentence_end_is_valid) {
  for (Index i = 0; i < 100; ++i) {
    const std::string text = story(i);
    std::size_t length = 0;
    Index count = 0;
    for (std::string_view sentence : split_sentences(text)) {
      length += sentence.size();
      const StoryVerdict verdict = stories().recognize(std::string_view(text).substr(0, length));
      EXPECT_EQ(verdict.valid, ++count) << text.substr(0, length);
      EXPECT_FALSE(verdict.first_fault || verdict.cut);
    }
  }
}

TEST(StoryGrammar, a_cut_last_sentence_is_not_counted) {
  const std::string text = story(4);
  std::vector<std::size_t> ends;
  for (const std::string_view sentence : split_sentences(text)) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + sentence.size());
  }
  Index cut = 0;
  for (std::size_t length = 1; length < text.size(); ++length) {
    const StoryVerdict verdict = stories().recognize(std::string_view(text).substr(0, length));
    EXPECT_EQ(verdict.valid, verdict.sentences) << text.substr(0, length);
    if (std::isalpha(static_cast<unsigned char>(text[length - 1])) != 0) {
      ++cut;
      EXPECT_TRUE(verdict.cut) << text.substr(0, length);
      EXPECT_EQ(verdict.sentences,
                std::ranges::count_if(ends, [&](std::size_t end) { return end < length; }))
          << text.substr(0, length);
    }
    EXPECT_FALSE(verdict.first_fault);
    EXPECT_EQ(verdict.finished, 0);
  }
  EXPECT_GT(cut, 20);
}

TEST(StoryGrammar, an_unfinished_story_is_a_fault) {
  const std::string text = story(4);
  const auto sentences = split_sentences(text);
  const std::string half = text.substr(0, sentences[0].size() + sentences[1].size()) + "\n";
  const StoryVerdict verdict = stories().recognize(half + story(5) + "\n");
  ASSERT_TRUE(verdict.first_fault);
  EXPECT_EQ(verdict.first_fault->kind, StoryFaultKind::Unfinished);
  EXPECT_EQ(verdict.stories, 2);
  EXPECT_EQ(verdict.finished, 1);
  EXPECT_EQ(verdict.valid, verdict.sentences);
}

TEST(StoryGrammar, swapped_words_that_break_agreement_are_found) {
  const std::vector<std::pair<std::string, std::string>> swaps = {
      {"she", "he"},          {"he", "she"},         {"her", "his"},   {"his", "her"},
      {"him", "her"},         {"Lily", "Tom"},       {"Tom", "Sam"},   {"ball", "kite"},
      {"drum", "bell"},       {"red", "blue"},       {"dog", "cat"},   {"owl", "fox"},
      {"ladder", "rope"},     {"sister", "brother"}, {"tree", "roof"}, {"mother", "father"},
      {"morning", "evening"}, {"bounce", "fly"},     {"sail", "push"}};
  for (const auto& [from, to] : swaps) {
    int tried = 0;
    for (Index i = 0; i < 2000; ++i) {
      std::string text = story(i);
      const auto places = find_word(text, from);
      if (places.size() < 2) continue;  // the only mention may be the one that draws the value
      text.replace(places.back(), from.size(), to);
      ++tried;
      EXPECT_TRUE(stories().recognize(text + "\n").first_fault) << text;
    }
    EXPECT_GT(tried, 5) << from;
  }
}

// Any word for any other: most swaps break the sentence or its agreement.
TEST(StoryGrammar, random_word_swaps_are_found) {
  const std::vector<std::string> words = stories().grammar().words();
  PhiloxStream random(1);
  int swapped = 0, found = 0;
  for (Index i = 0; i < 2000; ++i) {
    std::string text = story(i);
    std::vector<std::pair<std::size_t, std::size_t>> spans;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::size_t begin = at;
      while (at < text.size() && std::islower(static_cast<unsigned char>(text[at]))) ++at;
      if (at > begin) spans.emplace_back(begin, at - begin);
    }
    const auto [at, length] = spans[random.below(static_cast<std::uint32_t>(spans.size()))];
    const std::string& word = words[random.below(static_cast<std::uint32_t>(words.size()))];
    if (text.substr(at, length) == word) continue;
    text.replace(at, length, word);
    ++swapped;
    found += stories().recognize(text + "\n").first_fault ? 1 : 0;
  }
  EXPECT_GE(found, 0.99 * swapped) << found << " of " << swapped;
}

TEST(StoryGrammar, names_the_kind_and_place_of_a_fault) {
  std::string text =
      "Tom was a little boy. Tom had a red ball, and he loved to bounce it every day. One sunny "
      "morning, Tom went to the park with his mother. He took the red ball along. ";
  const auto fault_at = static_cast<Index>(text.size()) - 1;
  const StoryVerdict inconsistent =
      stories().recognize(text + "Soon, he saw that the blue ball was gone.");
  ASSERT_TRUE(inconsistent.first_fault);
  EXPECT_EQ(inconsistent.first_fault->kind, StoryFaultKind::Inconsistent);
  EXPECT_EQ(inconsistent.first_fault->begin, fault_at);
  EXPECT_EQ(inconsistent.first_fault->offset, fault_at + Index{23});  // " Soon, he saw that the "
  EXPECT_EQ(inconsistent.sentences, 5);
  EXPECT_EQ(inconsistent.grammatical, 5);
  EXPECT_EQ(inconsistent.valid, 4);
  const StoryVerdict broken = stories().recognize(text + "Tom wanted bounce to it.");
  ASSERT_TRUE(broken.first_fault);
  EXPECT_EQ(broken.first_fault->kind, StoryFaultKind::Ungrammatical);
  EXPECT_EQ(broken.grammatical, 4);
}

TEST(StoryGrammar, one_wrong_sentence_costs_one_sentence) {
  for (Index i = 0; i < 200; ++i) {
    std::string text = story(i);
    const auto sentences = split_sentences(text);
    const std::size_t middle = sentences.size() / 2;
    std::string broken;
    for (std::size_t k = 0; k < sentences.size(); ++k) {
      broken +=
          k == middle ? std::string(" The moon was made of soup.") : std::string(sentences[k]);
    }
    const StoryVerdict verdict = stories().recognize(broken + "\n");
    EXPECT_EQ(verdict.valid, verdict.sentences - 1) << broken;
    EXPECT_EQ(verdict.grammatical, verdict.sentences - 1);
    EXPECT_EQ(verdict.finished, 0);
  }
}

TEST(StoryGrammar, survives_arbitrary_bytes) {
  PhiloxStream random(9);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (int k = 0; k < 200; ++k) text.push_back(static_cast<char>(random.below(256)));
    const StoryVerdict verdict = stories().recognize(text);
    EXPECT_EQ(verdict.valid, 0);
  }
  const StoryVerdict empty = stories().recognize("");
  EXPECT_EQ(empty.sentences, 0);
  EXPECT_EQ(empty.valid_share(), 1);
  EXPECT_EQ(stories().log2_probability(""), 0);
}

TEST(StoryGrammar, stories_depend_on_the_seed_alone_and_do_not_repeat) {
  EXPECT_EQ(story(7), story(7));
  EXPECT_NE(story(7), generate_story(stories(), 4, StorySeries::Train, 7));
  EXPECT_NE(story(7), generate_story(stories(), 3, StorySeries::HeldOut, 7));
  std::set<std::string> distinct;
  for (Index i = 0; i < 20000; ++i) distinct.insert(story(i));
  for (Index i = 0; i < 2000; ++i) {
    distinct.insert(generate_story(stories(), 3, StorySeries::HeldOut, i));
  }
  EXPECT_EQ(distinct.size(), 22000u);
}

TEST(StoryGrammar, stories_have_the_promised_size) {
  const std::size_t words = stories().grammar().words().size();
  EXPECT_GT(words, 300u);
  EXPECT_LT(words, 800u);
  double sum = 0;
  for (Index i = 0; i < 2000; ++i) {
    const std::string text = story(i);
    const auto count = std::count(text.begin(), text.end(), ' ') + 1;
    EXPECT_GE(count, 60);
    EXPECT_LE(count, 170);
    EXPECT_EQ(text.find("  "), std::string::npos) << text;
    EXPECT_TRUE(ends_sentence(text)) << text;
    for (std::string_view sentence : split_sentences(text)) {
      const char first = sentence[sentence[0] == ' ' ? 1 : 0];
      EXPECT_TRUE(std::isupper(static_cast<unsigned char>(first)) || first == '"') << sentence;
    }
    EXPECT_FALSE(std::regex_search(text, std::regex("\\b[Aa] [aeiou]"))) << text;
    sum += static_cast<double>(count);
  }
  EXPECT_NEAR(sum / 2000, 110, 10);
}

TEST(Sentences, split_at_ends_outside_quotes) {
  const auto parts =
      split_sentences("He ran. \"Look! A dog,\" said Tom. \"Hi!\" he said. \"Bye.\" E");
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_EQ(parts[1], " \"Look! A dog,\" said Tom.");
  EXPECT_EQ(parts[2], " \"Hi!\" he said.");
  EXPECT_EQ(parts[3], " \"Bye.\"");
  EXPECT_EQ(parts[4], " E");
}

}  // namespace
}  // namespace hone::data
