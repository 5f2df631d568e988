// SPDX-License-Identifier: Apache-2.0
// The sampling chain against the logits processors of the transformers package, on random rows and
// random options.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "hone/core/file/json_io.h"
#include "hone/core/philox.h"
#include "hone/infer/sample/sampler.h"
#include "tests/support/largest_error.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

constexpr Index kCases = 1000, kVocab = 173;

struct Case {
  std::vector<float> logits = std::vector<float>(kVocab);
  std::vector<TokenId> prompt{}, output{}, masked{};
  SamplingParams sampling{};
};

// Numbers of few digits, so that JSON and float hold the same value as far as a cut is concerned.
Case make_case(std::uint64_t number) {
  PhiloxStream random(number, 44);
  Case made;
  const float spread = 1 + 12 * random.uniform();
  for (float& logit : made.logits) logit = spread * (2 * random.uniform() - 1);
  const auto any_id = [&] { return static_cast<TokenId>(random.below(kVocab)); };
  for (int i = 0; i < 6; ++i) made.prompt.push_back(any_id());
  for (int i = 0; i < 6; ++i) made.output.push_back(any_id());
  SamplingParams& sampling = made.sampling;
  if (random.below(2) == 0) {
    // Different tokens: transformers takes the last of two biases for one token.
    for (TokenId id = any_id(); id < kVocab; id += 40) {
      sampling.logit_bias.push_back({id, static_cast<float>(random.below(9)) - 4});
    }
  }
  if (random.below(2) == 0) made.masked = {any_id(), any_id()};
  if (random.below(2) == 0)
    sampling.repetition_penalty = 0.5f + 0.25f * static_cast<float>(random.below(6));
  sampling.temperature = 0.25f * static_cast<float>(1 + random.below(8));
  if (random.below(2) == 0) sampling.top_k = 1 + random.below(kVocab);
  if (random.below(2) == 0) sampling.top_p = (1 + static_cast<float>(random.below(127))) / 128;
  if (random.below(2) == 0) sampling.min_p = (1 + static_cast<float>(random.below(63))) / 256;
  return made;
}

Json json_of(const Case& made) {
  Json bias = Json::array();
  for (const LogitBias& entry : made.sampling.logit_bias) bias.push_back({entry.id, entry.bias});
  return {{"prompt", made.prompt},
          {"output", made.output},
          {"bias", bias},
          {"masked", made.masked},
          {"repetition", made.sampling.repetition_penalty},
          {"temperature", made.sampling.temperature},
          {"top_k", made.sampling.top_k},
          {"top_p", made.sampling.top_p},
          {"min_p", made.sampling.min_p}};
}

std::vector<char> read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LogitsProcessors, keep_what_transformers_keeps_with_the_same_distribution) {
  HONE_REQUIRE_PEER("transformers", "torch");
  const hone::test::TemporaryFolder folder;
  std::vector<Case> cases;
  Json described = Json::array();
  std::ofstream rows(folder.path() / "logits.f32", std::ios::binary);
  for (Index i = 0; i < kCases; ++i) {
    cases.push_back(make_case(static_cast<std::uint64_t>(i)));
    described.push_back(json_of(cases.back()));
    rows.write(reinterpret_cast<const char*>(cases.back().logits.data()), kVocab * sizeof(float));
  }
  rows.close();
  std::ofstream(folder.path() / "cases.json") << described;
  hone::test::run_peer("tests/infer/logits_processors.py", {folder.path().string()});
  const std::vector<char> kept = read_bytes(folder.path() / "kept.u8");
  const std::vector<char> distributions = read_bytes(folder.path() / "distribution.f64");
  ASSERT_EQ(kept.size(), static_cast<std::size_t>(kCases * kVocab));
  ASSERT_EQ(distributions.size(), kept.size() * sizeof(double));
  const auto* expected = reinterpret_cast<const double*>(distributions.data());
  hone::test::LargestError worst;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    Case& made = cases[c];
    Sampler sampler(made.sampling, made.prompt);
    for (const TokenId id : made.output) sampler.history().add_output(id);
    std::vector<double> distribution(kVocab);
    sampler.write_distribution(made.logits, made.masked, distribution);
    for (std::size_t i = 0; i < distribution.size(); ++i) {
      const std::size_t at = c * kVocab + i;
      ASSERT_EQ(distribution[i] > 0, kept[at] != 0)
          << "case " << c << " token " << i << described[c];
      worst.add(distribution[i], expected[at]);
    }
  }
  // Bias and penalty are rounded to f32 once each: 20 * 2^-24 for logits up to 20, twice, divided
  // by the lowest temperature of 0.25.
  EXPECT_LE(worst.error, 2 * 20 * 0x1p-24 / 0.25);
}

}  // namespace
}  // namespace hone::infer
