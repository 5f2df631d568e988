// SPDX-License-Identifier: Apache-2.0
// Attention against an oracle that shares nothing with it: it reads the keys and values that were
// written, not the cache, and sums in double from the far end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/attention/attention.h"

namespace hone::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Queries, keys and values of one sequence, and a cache that holds NaN wherever nothing was
// written. Blocks lie in reverse order.
class Problem {
 public:
  Problem(Dtype dtype, Index kv_heads, Index group, Index head_dim, Index tokens, float spread = 1)
      : heads_(kv_heads * group), tokens_(tokens) {
    layout_ = {.dtype = dtype, .layers = 1, .kv_heads = kv_heads, .head_dim = head_dim};
    PhiloxStream random(static_cast<std::uint64_t>(tokens * 1000 + head_dim));
    const auto fill = [&](std::vector<float>& values, Index count, float size) {
      values.resize(static_cast<std::size_t>(count));
      for (float& value : values) value = size * (2 * random.uniform() - 1);
    };
    fill(q_, tokens * heads_ * head_dim, spread);
    fill(k_, tokens * kv_heads * head_dim, 1);
    fill(v_, tokens * kv_heads * head_dim, 1);
    const Index count = ceil_div(tokens, kKvBlockTokens);
    memory_.assign(static_cast<std::size_t>(count * layout_.block_bytes()), std::byte{0xff});
    for (Index i = count - 1; i >= 0; --i)
      blocks_.push_back(memory_.data() + i * layout_.block_bytes());
    write(0, tokens);
    scale_ = 1 / std::sqrt(static_cast<float>(head_dim));
  }

  void write(Index first, Index rows) {
    const Index width = layout_.kv_heads * layout_.head_dim;
    write_kv({.k = k_.data() + first * width,
              .v = v_.data() + first * width,
              .stride = width,
              .rows = rows,
              .first_position = first,
              .head_end = layout_.kv_heads,
              .cache = view()});
  }

  std::vector<float> run(Index first, Index rows, Executor& executor = serial_executor()) const {
    const Index width = heads_ * layout_.head_dim;
    std::vector<float> out(static_cast<std::size_t>(rows * width), kNan);

    const AttentionSequence sequence[] = {
        {.rows = rows, .first_position = first, .blocks = view().blocks}};
    attention({.q = q_.data() + first * width,
               .q_stride = width,
               .out = out.data(),
               .out_stride = width,
               .heads = heads_,
               .scale = scale_,
               .layout = layout_,
               .layer = view().layer,
               .sequences = sequence},
              executor);
    return out;
  }

  // Outputs of the query at `position`, [heads, head_dim].
  std::vector<double> oracle(Index position) const {
    const Index dim = layout_.head_dim, group = heads_ / layout_.kv_heads;
    std::vector<double> out(static_cast<std::size_t>(heads_ * dim), 0.0);
    for (Index head = 0; head < heads_; ++head) {
      std::vector<double> scores;
      for (Index t = 0; t <= position; ++t) {
        double score = 0;
        for (Index i = dim - 1; i >= 0; --i)
          score += static_cast<double>(q_[at(position, head, i, heads_)]) *
                   stored(k_[at(t, head / group, i, layout_.kv_heads)]);
        scores.push_back(score * scale_);
      }
      const double most = *std::ranges::max_element(scores);
      double sum = 0;
      for (Index t = position; t >= 0; --t) {
        const double weight = std::exp(scores[static_cast<std::size_t>(t)] - most);
        sum += weight;
        for (Index i = 0; i < dim; ++i)
          out[static_cast<std::size_t>(head * dim + i)] +=
              weight * stored(v_[at(t, head / group, i, layout_.kv_heads)]);
      }
      for (Index i = 0; i < dim; ++i) out[static_cast<std::size_t>(head * dim + i)] /= sum;
    }
    return out;
  }

  Index tokens() const { return tokens_; }
  Index width() const { return heads_ * layout_.head_dim; }
  // A score is at most spread * sqrt(head_dim): its rounding, twice (numerator and sum), and the
  // rounding of sums of values below 1.
  double tolerance(double spread = 1) const {
    const double dim = static_cast<double>(layout_.head_dim);
    return 1.2e-7 * (2 * spread * dim + 16);
  }

  std::vector<float> q_, k_, v_;

 private:
  std::size_t at(Index token, Index head, Index i, Index heads) const {
    return static_cast<std::size_t>((token * heads + head) * layout_.head_dim + i);
  }
  double stored(float value) const {
    return layout_.dtype == Dtype::Float16 ? f16_to_float(float_to_f16(value)) : value;
  }
  KvView view() const { return {layout_, 0, blocks_}; }

  KvLayout layout_;
  Index heads_, tokens_;
  float scale_ = 1;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> blocks_;
};

void expect_oracle(const Problem& problem, Index first, Index rows, double spread = 1) {
  const auto out = problem.run(first, rows);
  for (const Index row : {Index{0}, rows / 2, rows - 1}) {
    const auto expected = problem.oracle(first + row);
    for (Index i = 0; i < problem.width(); ++i) {
      ASSERT_NEAR(out[static_cast<std::size_t>(row * problem.width() + i)],
                  expected[static_cast<std::size_t>(i)], problem.tolerance(spread))
          << "row " << row << " of " << rows << " at " << first << ", element " << i;
    }
  }
}

TEST(AttentionOracle, decode_at_every_block_and_segment_border_and_group) {
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16}) {
    for (const Index tokens : {1, 31, 32, 33, 255, 256, 257, 511, 512, 513}) {
      for (const Index group : {1, 2, 3, 8, 16}) {
        const Problem problem(dtype, 2, group, 24, tokens);
        expect_oracle(problem, tokens - 1, 1);
      }
    }
  }
}

TEST(AttentionOracle, prefill_of_whole_and_partial_prompts) {
  for (const Index tokens : {9, 33, 257, 300}) {
    for (const Index group : {1, 3, 16}) {
      const Problem problem(Dtype::Float32, 2, group, 16, tokens);
      expect_oracle(problem, 0, tokens);
      expect_oracle(problem, tokens / 3, tokens - tokens / 3);
    }
  }
}

TEST(AttentionOracle, head_sizes_that_fill_no_vector) {
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16}) {
    for (const Index head_dim : {1, 2, 3, 7, 15, 17, 31, 33, 65, 80, 127, 128}) {
      const Problem problem(dtype, 1, 3, head_dim, 70);
      expect_oracle(problem, 69, 1);
      expect_oracle(problem, 40, 30);
    }
  }
}

// Scores of hundreds: all weight on few tokens, most exponentials underflow.
TEST(AttentionOracle, sharp_distributions_stay_finite_and_right) {
  const Problem problem(Dtype::Float32, 2, 2, 32, 300, 200);
  expect_oracle(problem, 299, 1, 200);
  expect_oracle(problem, 280, 20, 200);
}

TEST(AttentionOracle, equal_keys_give_the_mean_of_the_values) {
  Problem problem(Dtype::Float32, 1, 2, 8, 300);
  std::ranges::fill(problem.k_, 0.25f);
  problem.write(0, 300);
  const auto out = problem.run(299, 1);
  for (std::size_t i = 0; i < 8; ++i) {
    double mean = 0;
    for (std::size_t t = 0; t < 300; ++t) mean += problem.v_[t * 8 + i];
    EXPECT_NEAR(out[i], mean / 300, 2e-6);
    EXPECT_EQ(out[i], out[8 + i]) << "heads of a group see the same keys";
  }
}

TEST(AttentionOracle, one_token_gives_its_own_value) {
  const Problem problem(Dtype::Float32, 3, 2, 10, 1);
  const auto out = problem.run(0, 1);
  for (std::size_t head = 0; head < 6; ++head) {
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_EQ(out[head * 10 + i], problem.v_[head / 2 * 10 + i]);
  }
}

TEST(AttentionOracle, nan_in_one_query_head_reaches_that_head_and_no_other) {
  for (const Index rows : {1, 20}) {
    Problem problem(Dtype::Float32, 2, 2, 16, 290);
    const auto before = problem.run(270, rows);
    problem.q_[static_cast<std::size_t>(270 * problem.width() + 16)] = kNan;  // head 1
    const auto after = problem.run(270, rows);
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (i >= 16 && i < 32) {
        ASSERT_TRUE(std::isnan(after[i])) << rows << " rows, element " << i;
      } else {
        ASSERT_EQ(after[i], before[i]) << rows << " rows, element " << i;
      }
    }
  }
}

TEST(AttentionOracle, adding_one_vector_to_all_keys_changes_nothing) {
  Problem problem(Dtype::Float32, 1, 3, 16, 290);
  const auto before = problem.run(280, 10);
  for (std::size_t i = 0; i < problem.k_.size(); ++i) problem.k_[i] += 0.5f;
  problem.write(0, 290);
  const auto after = problem.run(280, 10);
  for (std::size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-5) << i;
}

TEST(AttentionOracle, random_chunks_on_any_number_of_threads_give_the_bits_of_one_prefill) {
  PhiloxStream random(31);
  ThreadPool two(2), four(4);
  for (int trial = 0; trial < 24; ++trial) {
    const Index groups[] = {1, 2, 3, 8, 16};
    const Index dims[] = {5, 8, 24, 64};
    const Problem problem(trial % 2 == 0 ? Dtype::Float32 : Dtype::Float16, 1 + random.below(3),
                          groups[random.below(5)], dims[random.below(4)], 1 + random.below(560));
    const auto whole = problem.run(0, problem.tokens());
    for (Index first = 0; first < problem.tokens();) {
      const Index rows = std::min<Index>(problem.tokens() - first,
                                         1 + random.below(random.below(2) == 0 ? 12 : 200));
      Executor& executor = random.below(2) == 0 ? static_cast<Executor&>(two) : four;
      const auto part = problem.run(first, rows, executor);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * problem.width()))
          << "trial " << trial << ": " << rows << " rows at " << first;
      first += rows;
    }
  }
}

}  // namespace
}  // namespace hone::kernels
