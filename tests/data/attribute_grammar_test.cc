// SPDX-License-Identifier: Apache-2.0
#include "hone/data/attribute_grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "hone/core/error.h"

namespace hone::data {
namespace {

// Weighted draws, a filter that excludes, one that selects, a switch, an empty alternative.
constexpr std::string_view kSmall = R"(
domain gender: name
  2* girl
  boy
domain person: name, kind, he
  3* Ann, girl, she
  Eve, girl, she
  2* Tom, boy, he
  5* Bo, boy, he
slot sex: gender
slot hero: person where kind = sex
slot friend: person where name != hero
rule story
  3* A {sex!} named {hero!} met {friend!}.( {Hero.he} ran.|) <end:friend.kind>
  {hero!} saw {friend!}. <end:hero.kind>
rule end.girl
  2* {hero} (3*sang|hummed).
  {friend} slept.
rule end.boy
  The end.
)";

double probability_of(const AttributeGrammar& grammar, const std::string& text) {
  double probability = 0;
  grammar.advance(grammar.start(), text, [&](const AttributeGrammar::Configuration& end) {
    if (grammar.is_end(end)) probability += end.probability;
  });
  return probability;
}

std::map<std::string, int> sample(const AttributeGrammar& grammar, int draws) {
  std::map<std::string, int> counts;
  PhiloxStream random(11);
  for (int i = 0; i < draws; ++i) ++counts[grammar.generate(random)];
  return counts;
}

void expect_refused(std::string_view source, std::string_view part) {
  try {
    const AttributeGrammar grammar(source);
    ADD_FAILURE() << "accepted: " << source;
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

// 200000 draws reach every text of this grammar (the rarest has probability above 1e-3).
TEST(AttributeGrammar, enumerated_texts_have_probabilities_that_sum_to_one) {
  const AttributeGrammar grammar(kSmall, "\n");
  double sum = 0;
  for (const auto& [text, count] : sample(grammar, 200000)) sum += probability_of(grammar, text);
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(AttributeGrammar, sampler_follows_the_stated_probabilities) {
  const AttributeGrammar grammar(kSmall, "\n");
  constexpr int kDraws = 200000;
  double chi2 = 0;
  const auto counts = sample(grammar, kDraws);
  for (const auto& [text, count] : counts) {
    const double expected = kDraws * probability_of(grammar, text);
    chi2 += (count - expected) * (count - expected) / expected;
  }
  const double freedom = static_cast<double>(counts.size() - 1);
  // Normal approximation of chi-square at 5 standard deviations: error probability below 1e-5.
  EXPECT_LT(chi2, freedom + 5 * std::sqrt(2 * freedom));
  EXPECT_GT(counts.size(), 30u);
}

TEST(AttributeGrammar, closed_form_entropy_equals_the_sum_over_all_texts) {
  const AttributeGrammar grammar(kSmall, "\n");
  double entropy = 0;
  for (const auto& [text, count] : sample(grammar, 200000)) {
    const double probability = probability_of(grammar, text);
    entropy -= probability * std::log2(probability);
  }
  EXPECT_NEAR(grammar.entropy_bits(), entropy, 1e-10);
}

TEST(AttributeGrammar, hand_computed_probability) {
  const AttributeGrammar grammar(kSmall);
  // 3/4 · sex 2/3 · hero 3/4 · friend 2/8 · empty 1/2 · end.boy 1
  EXPECT_NEAR(probability_of(grammar, "A girl named Ann met Tom. The end."),
              0.75 * 2 / 3 * 0.75 * 0.25 * 0.5, 1e-15);
  // 1/4 · hero 3/11 · friend 1/8 · 2/3 · 3/4
  EXPECT_NEAR(probability_of(grammar, "Ann saw Eve. Ann sang."), 0.25 * 3 / 11 / 8 * 2 / 3 * 0.75,
              1e-15);
  EXPECT_EQ(probability_of(grammar, "A girl named Ann met Ann. The end."), 0);
  EXPECT_EQ(probability_of(grammar, "A boy named Ann met Tom. The end."), 0);
  EXPECT_EQ(probability_of(grammar, "A girl named Ann met Tom. He ran. The end."), 0);
}

TEST(AttributeGrammar, prefix_probabilities_add_up_over_the_next_byte) {
  const AttributeGrammar grammar(kSmall, "\n");
  const auto prefix = [&](const std::string& text) {
    double probability = 0;
    grammar.advance(grammar.start(), text, [&](const AttributeGrammar::Configuration& end) {
      probability += end.probability;
    });
    return probability;
  };
  const std::string text = "A girl named Eve met Ann. She ran. Eve hummed.\n";
  for (std::size_t length = 0; length < text.size(); ++length) {
    double sum = 0;
    for (int byte = 1; byte < 128; ++byte) {
      sum += prefix(text.substr(0, length) + static_cast<char>(byte));
    }
    EXPECT_NEAR(sum, prefix(text.substr(0, length)), 1e-14) << text.substr(0, length);
  }
}

TEST(AttributeGrammar, ambiguity_search_clears_what_is_unambiguous) {
  EXPECT_FALSE(AttributeGrammar(kSmall).find_ambiguity());
}

TEST(AttributeGrammar, ambiguity_search_finds_two_derivations_of_one_text) {
  const std::string head =
      "domain person: name\n Ann\n Annabel\n Bo\nslot a: person\nslot b: person where name != a\n"
      "slot c: person\n";
  for (const std::string rules : {
           "rule s\n (x|y|x) {a!}\n",                   // the same alternative twice
           "rule s\n {a!} (red|red hat)( hat|).\n",     // two ways to part one text
           "rule s\n {a!}(|()) ran.\n",                 // two silent ways
           "rule s\n {a!} saw {c!}. ({a}|{c}) ran.\n",  // a and c may be the same
           "rule s\n {a!}(abel|) ran.\n",               // Ann + bel, Annabel
           "rule s\n {a!} saw (a dog|<p>).\nrule p\n a (dog|cat)\n",
       }) {
    EXPECT_TRUE(AttributeGrammar(head + rules).find_ambiguity()) << rules;
  }
  EXPECT_FALSE(
      AttributeGrammar(head + "rule s\n {a!} saw {b!}. ({a}|{b}) ran.\n").find_ambiguity());
}

TEST(AttributeGrammar, a_backslash_joins_lines) {
  PhiloxStream random(1);
  EXPECT_EQ(AttributeGrammar("rule a\n  one \\\n      two\\\n  three\n").generate(random),
            "one twothree");
}

TEST(AttributeGrammar, refuses_mistakes_with_their_line) {
  expect_refused("rule a\n <b>\nrule b\n <a>\n", "recursive");
  expect_refused("rule a\n <b>\n", "no rule b");
  expect_refused("rule a\n x\nrule b\n y\n", "line 3");
  expect_refused("rule a\n (x|y\n", "closing )");
  expect_refused("rule a\n {x}\n", "declared slot");
  expect_refused("domain d: k\n v\nslot s: d\nrule a\n {s} x\n", "before it is drawn");
  expect_refused("domain d: k\n v\nslot s: d\nrule a\n ({s!}|) {s}\n", "before it is drawn");
  expect_refused("domain d: k\n v\nslot s: d\nrule a\n {s!} {s!}\n", "drawn twice");
  expect_refused("domain d: k, l\n v\nslot s: d\nrule a\n {s!}\n", "2 forms");
  expect_refused("domain d: k, l\n v, w\nslot s: d\nrule a\n {s!} {s.m}\n", "form of the domain");
  expect_refused("domain d: k\n v\n w\nslot s: d\nslot t: d where k != s\nrule a\n {t!} {s!}\n",
                 "must differ from");
  expect_refused("", "no rule");
}

}  // namespace
}  // namespace hone::data
