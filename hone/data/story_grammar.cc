// SPDX-License-Identifier: Apache-2.0
#include "hone/data/story_grammar.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hone/data/sentence.h"

namespace hone::data {
namespace {

using Configuration = AttributeGrammar::Configuration;
using Configurations = std::vector<Configuration>;

// Only broken texts have more readings of one sentence than this; further ones are dropped.
constexpr std::size_t kMaxReadings = 256;

void keep(Configurations& readings, const Configuration& reading) {
  const auto same = [&](const Configuration& other) {
    return other.position == reading.position && other.state == reading.state;
  };
  if (readings.size() < kMaxReadings && std::none_of(readings.begin(), readings.end(), same)) {
    readings.push_back(reading);
  }
}

// Reads one story sentence by sentence.
class StoryReader {
 public:
  explicit StoryReader(const AttributeGrammar& grammar)
      : grammar_(grammar), here_{grammar.start()} {}

  // The ways to continue the story with this sentence; `reach` receives the longest match in bytes.
  Configurations read(std::string_view sentence, Index& reach) const {
    return read_from(here_, sentence, reach);
  }
  void accept(Configurations next) { here_ = std::move(next); }
  bool is_grammatical(std::string_view sentence) const {
    Index reach = 0;
    Configurations anywhere;
    for (const auto& position : grammar_.sentence_starts()) {
      anywhere.push_back({position, AttributeGrammar::unbound_state(), 1});
    }
    return !read_blank_tolerant(anywhere, sentence, reach).empty();
  }

  // Recovers from a sentence that does not fit here: the story may continue at any later place,
  // with the facts known so far, or after the sentence itself if it occurs there.
  void recover(std::string_view sentence) {
    Configurations later;
    for (const Configuration& reading : here_) {
      for (const auto& position : grammar_.sentence_starts_after(reading.position.node)) {
        Configuration skipped = reading;
        skipped.position = position;
        keep(later, skipped);
      }
    }
    Index reach = 0;
    Configurations after = read_from(later, sentence, reach);
    here_ = after.empty() ? std::move(later) : std::move(after);
  }

 private:
  Configurations read_from(const Configurations& from, std::string_view sentence,
                           Index& reach) const {
    Configurations next;
    for (const Configuration& reading : from) {
      const Index matched =
          grammar_.advance(reading, sentence, [&](const Configuration& end) { keep(next, end); });
      reach = std::max(reach, matched);
    }
    return next;
  }

  // All sentences but the first of a story begin with a blank, so both forms are tried.
  Configurations read_blank_tolerant(const Configurations& from, std::string_view sentence,
                                     Index& reach) const {
    const bool has_blank = !sentence.empty() && sentence.front() == ' ';
    Configurations next = read_from(from, sentence, reach);
    if (!next.empty()) return next;
    if (has_blank) return read_from(from, sentence.substr(1), reach);
    return read_from(from, " " + std::string(sentence), reach);
  }

  const AttributeGrammar& grammar_;
  Configurations here_;
};

class Judge {
 public:
  explicit Judge(const AttributeGrammar& grammar) : grammar_(grammar) {}

  // `ended` says that a separator follows the story.
  void judge_story(std::string_view story, Index begin, bool ended) {
    ++verdict_.stories;
    StoryReader reader(grammar_);
    bool clean = true;
    for (std::string_view sentence : split_sentences(story)) {
      if (!ends_sentence(sentence) && !ended) {
        verdict_.cut = true;
        return;
      }
      clean = judge_sentence(reader, sentence, begin) && clean;
      begin += static_cast<Index>(sentence.size());
    }
    if (!ended) return;
    Index reach = 0;
    const bool complete = !reader.read(kStorySeparator, reach).empty();
    if (!complete && clean) note(StoryFaultKind::Unfinished, begin, 0, kStorySeparator);
    if (complete && clean) ++verdict_.finished;
  }

  StoryVerdict take() { return std::move(verdict_); }

 private:
  bool judge_sentence(StoryReader& reader, std::string_view sentence, Index begin) {
    ++verdict_.sentences;
    Index reach = 0;
    Configurations next = reader.read(sentence, reach);
    if (!next.empty()) {
      ++verdict_.grammatical;
      ++verdict_.valid;
      reader.accept(std::move(next));
      return true;
    }
    const bool grammatical = reader.is_grammatical(sentence);
    verdict_.grammatical += grammatical ? 1 : 0;
    note(grammatical ? StoryFaultKind::Inconsistent : StoryFaultKind::Ungrammatical, begin, reach,
         sentence);
    reader.recover(sentence);
    return false;
  }

  void note(StoryFaultKind kind, Index begin, Index reach, std::string_view sentence) {
    if (verdict_.first_fault) return;
    verdict_.first_fault = StoryFault{kind, begin, begin + reach, std::string(sentence)};
  }

  const AttributeGrammar& grammar_;
  StoryVerdict verdict_;
};

}  // namespace

std::string_view name_of(StoryFaultKind kind) {
  switch (kind) {
    case StoryFaultKind::Ungrammatical:
      return "ungrammatical";
    case StoryFaultKind::Inconsistent:
      return "inconsistent";
    case StoryFaultKind::Unfinished:
      return "unfinished";
  }
  return "unknown";
}

double StoryVerdict::valid_share() const {
  return sentences == 0 ? 1 : static_cast<double>(valid) / static_cast<double>(sentences);
}

StoryGrammar::StoryGrammar(std::string_view source) : grammar_(source, kStorySeparator) {}

std::string StoryGrammar::generate(PhiloxStream& random) const {
  std::string story = grammar_.generate(random);
  story.resize(story.size() - kStorySeparator.size());
  return story;
}

StoryVerdict StoryGrammar::recognize(std::string_view text) const {
  Judge judge(grammar_);
  Index begin = 0;
  while (!text.empty()) {
    const auto end = text.find(kStorySeparator);
    const bool ended = end != std::string_view::npos;
    const std::string_view story = text.substr(0, end);
    judge.judge_story(story, begin, ended);
    const std::size_t taken = story.size() + (ended ? kStorySeparator.size() : 0);
    begin += static_cast<Index>(taken);
    text.remove_prefix(taken);
  }
  return judge.take();
}

double StoryGrammar::log2_probability(std::string_view text) const {
  double bits = 0;
  while (!text.empty()) {
    const auto end = text.find(kStorySeparator);
    const std::size_t taken =
        end == std::string_view::npos ? text.size() : end + kStorySeparator.size();
    double probability = 0;
    const auto add = [&](const Configuration& reading) { probability += reading.probability; };
    grammar_.advance(grammar_.start(), text.substr(0, taken), add);
    bits += std::log2(probability);  // -infinity stays -infinity
    text.remove_prefix(taken);
  }
  return bits;
}

std::string generate_story(const StoryGrammar& grammar, std::uint64_t seed, StorySeries series,
                           Index index) {
  constexpr std::uint64_t kHeldOut = std::uint64_t{1} << 63;
  const auto stream = static_cast<std::uint64_t>(index);
  PhiloxStream random(seed, series == StorySeries::HeldOut ? stream | kHeldOut : stream);
  return grammar.generate(random);
}

}  // namespace hone::data
