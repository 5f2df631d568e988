// SPDX-License-Identifier: Apache-2.0
#include "hone/text/bpe_trainer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <unordered_map>

#include "hone/core/check.h"
#include "hone/text/bpe/byte_alphabet.h"
#include "hone/text/pre_tokenizer.h"
#include "hone/text/unicode/splitter.h"

namespace hone::text {
namespace {

using PairKey = std::uint64_t;  // left id in the high half, so keys compare as (left, right)

PairKey key_of(TokenId left, TokenId right) {
  return (PairKey{static_cast<std::uint32_t>(left)} << 32) | static_cast<std::uint32_t>(right);
}

struct HashKey {
  std::size_t operator()(PairKey key) const { return key * 0x9E3779B97F4A7C15u >> 16; }
};

struct PairStatistics {
  Index count = 0;
  std::vector<std::uint32_t> places;  // of left symbols; may include places that have since changed
};

struct Candidate {
  Index count;
  PairKey key;
  bool operator<(const Candidate& other) const {  // the queue's top is the largest
    return count != other.count ? count < other.count : key > other.key;
  }
};

// The distinct words, stored one after another as linked symbols. A merge visits only the places of
// its pair and corrects the counts of the neighboring pairs.
class Trainer {
 public:
  Trainer(Vocabulary& vocabulary, Index min_count)
      : vocabulary_(vocabulary), min_count_(min_count) {
    for (const std::string& piece : vocabulary.pieces) {
      ids_.emplace(piece, static_cast<TokenId>(ids_.size()));
    }
  }

  void add_word(std::string_view word, Index count, TokenId first_byte_id);
  void train(Index vocab_size);

 private:
  struct Place {
    TokenId id;
    std::int32_t previous, next;  // -1 if none
    std::uint32_t word;
  };

  void add_pair(std::int32_t left, Index count);
  void remove_pair(TokenId left, TokenId right, Index count);
  TokenId add_merge(PairKey key);
  void merge_everywhere(PairKey key, TokenId merged);
  void merge_at(std::uint32_t place, PairKey key, TokenId merged);
  TokenId id_at(std::int32_t place) const { return places_[place].id; }

  Vocabulary& vocabulary_;
  Index min_count_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<Place> places_;
  std::vector<Index> word_counts_;
  std::unordered_map<PairKey, PairStatistics, HashKey> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<PairKey> grown_;  // pairs whose count the current merge has increased
};

// The rank of each byte in the order of its letters.
std::array<TokenId, 256> rank_bytes() {
  std::array<int, 256> bytes{};
  for (int i = 0; i < 256; ++i) bytes[i] = i;
  std::sort(bytes.begin(), bytes.end(), [](int a, int b) {
    return byte_to_letter(static_cast<std::uint8_t>(a)) <
           byte_to_letter(static_cast<std::uint8_t>(b));
  });
  std::array<TokenId, 256> ranks{};
  for (int i = 0; i < 256; ++i) ranks[bytes[i]] = i;
  return ranks;
}

void Trainer::add_word(std::string_view word, Index count, TokenId first_byte_id) {
  static const std::array<TokenId, 256> kRanks = rank_bytes();
  const auto begin = static_cast<std::int32_t>(places_.size());
  const auto end = begin + static_cast<std::int32_t>(word.size());
  for (std::int32_t i = begin; i < end; ++i) {
    const auto byte = static_cast<std::uint8_t>(word[i - begin]);
    places_.push_back({first_byte_id + kRanks[byte], i == begin ? -1 : i - 1,
                       i + 1 == end ? -1 : i + 1, static_cast<std::uint32_t>(word_counts_.size())});
  }
  word_counts_.push_back(count);
  for (std::int32_t i = begin; i + 1 < end; ++i) add_pair(i, count);
}

void Trainer::add_pair(std::int32_t left, Index count) {
  const PairKey key = key_of(id_at(left), id_at(places_[left].next));
  PairStatistics& pair = pairs_[key];
  pair.count += count;
  pair.places.push_back(static_cast<std::uint32_t>(left));
  grown_.push_back(key);
}

void Trainer::remove_pair(TokenId left, TokenId right, Index count) {
  const auto pair = pairs_.find(key_of(left, right));
  if (pair != pairs_.end()) pair->second.count -= count;  // the pair being merged is absent
}

TokenId Trainer::add_merge(PairKey key) {
  const std::string left = vocabulary_.pieces[key >> 32];
  const std::string right = vocabulary_.pieces[key & 0xFFFFFFFFu];
  const auto [found, fresh] = ids_.emplace(left + right, static_cast<TokenId>(ids_.size()));
  if (fresh) {
    vocabulary_.pieces.push_back(left + right);
    vocabulary_.types.push_back(TokenType::Normal);
  }
  vocabulary_.merges.emplace_back(left, right);
  return found->second;
}

void Trainer::merge_at(std::uint32_t place, PairKey key, TokenId merged) {
  Place& left = places_[place];
  if (left.next < 0 || key_of(left.id, id_at(left.next)) != key) return;
  Place& right = places_[left.next];
  const Index count = word_counts_[left.word];
  if (left.previous >= 0) remove_pair(id_at(left.previous), left.id, count);
  if (right.next >= 0) remove_pair(right.id, id_at(right.next), count);
  left.id = merged;
  right.id = -1;
  left.next = right.next;
  if (left.next >= 0) places_[left.next].previous = static_cast<std::int32_t>(place);
  if (left.previous >= 0) add_pair(left.previous, count);
  if (left.next >= 0) add_pair(static_cast<std::int32_t>(place), count);
}

void Trainer::merge_everywhere(PairKey key, TokenId merged) {
  std::vector<std::uint32_t> places = std::move(pairs_[key].places);
  pairs_.erase(key);
  // In order from the left, so that "aaa" becomes (aa)a. A place may be listed twice; the second
  // visit finds it changed.
  std::sort(places.begin(), places.end());
  for (const std::uint32_t place : places) merge_at(place, key, merged);
}

void Trainer::train(Index vocab_size) {
  const auto queue_grown = [this] {
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const PairKey key : grown_) queue_.push({pairs_[key].count, key});
    grown_.clear();
  };
  queue_grown();
  while (static_cast<Index>(vocabulary_.pieces.size()) < vocab_size && !queue_.empty()) {
    const Candidate best = queue_.top();
    queue_.pop();
    const auto pair = pairs_.find(best.key);
    if (pair == pairs_.end()) continue;
    if (pair->second.count != best.count) {  // its count has decreased since, so it is queued again
      if (pair->second.count < best.count) queue_.push({pair->second.count, best.key});
      continue;
    }
    if (best.count < min_count_) break;
    merge_everywhere(best.key, add_merge(best.key));
    queue_grown();
  }
}

std::unordered_map<std::string, Index> count_words(std::span<const std::string_view> texts) {
  const Splitter splitter(kGpt2Pattern, "tokenizer training");
  std::unordered_map<std::string, Index> counts;
  std::string word;
  for (const std::string_view text : texts) {
    splitter.split(text, [&](std::string_view part) {
      word.assign(part);
      ++counts[word];
    });
  }
  return counts;
}

}  // namespace

Vocabulary train_byte_level_bpe(std::span<const std::string_view> texts,
                                const BpeTrainOptions& options) {
  constexpr std::string_view kOp = "tokenizer training";
  const auto special = static_cast<TokenId>(options.special_tokens.size());
  HONE_CHECK(options.vocab_size >= 256 + special &&
                 options.vocab_size <= std::numeric_limits<TokenId>::max(),
             kOp, concat("a vocabulary of at least ", 256 + special, " tokens"),
             options.vocab_size);
  HONE_CHECK(options.min_count >= 1, kOp, "a min_count of at least 1", options.min_count);
  Vocabulary vocabulary;
  vocabulary.model = TokenizerModel::ByteLevelBpe;
  vocabulary.pattern = kGpt2Pattern;
  vocabulary.pieces = options.special_tokens;
  vocabulary.types.assign(special, TokenType::Control);
  if (special > 0) vocabulary.bos = vocabulary.eos = 0;
  vocabulary.pieces.resize(special + 256);
  vocabulary.types.resize(special + 256, TokenType::Normal);
  const auto ranks = rank_bytes();
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.pieces[special + ranks[byte]] = spell_bytes(std::string(1, static_cast<char>(byte)));
  }
  if (options.vocab_size == 256 + special) return vocabulary;

  Trainer trainer(vocabulary, options.min_count);
  std::size_t symbols = 0;
  for (const auto& [word, count] : count_words(texts)) {
    symbols += word.size();
    HONE_CHECK(symbols <= std::numeric_limits<std::int32_t>::max(), kOp,
               "at most 2 GiB of distinct words", symbols);
    trainer.add_word(word, count, special);
  }
  trainer.train(options.vocab_size);
  return vocabulary;
}

}  // namespace hone::text
