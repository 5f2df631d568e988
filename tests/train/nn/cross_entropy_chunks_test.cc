// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of a vocabulary so large that the logits of a batch exist in parts only.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hone/train/amp/autocast_guard.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/nn/ops.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr Index kClasses = 70'000, kSamples = 300, kWidth = 8;

struct Gradients {
  Tensor loss, by_hidden, by_weight;
};

class CrossEntropyChunks : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    hidden_ = at::randn({kSamples, kWidth});
    weight_ = at::randn({kClasses, kWidth});
    targets_ = at::randint(kClasses, {kSamples}, at::kLong);
    targets_[7] = -1;
    targets_[kSamples - 1] = -1;
  }

  template <class Loss>
  static Gradients run(const Tensor& hidden, const Tensor& weight, const Loss& loss_of,
                       bool for_hidden = true, bool for_weight = true) {
    const Tensor x = hidden.detach().clone().requires_grad_(for_hidden);
    const Tensor w = weight.detach().clone().requires_grad_(for_weight);
    const Tensor loss = loss_of(x, w);
    (loss / 16).backward();
    return {loss.detach(), x.grad(), w.grad()};
  }
  Gradients fused(bool for_hidden = true, bool for_weight = true) const {
    const auto loss_of = [this](const Tensor& x, const Tensor& w) {
      return linear_cross_entropy(x, w, targets_, MatmulBackend::Mkl);
    };
    return run(hidden_, weight_, loss_of, for_hidden, for_weight);
  }
  Gradients in_double() const {
    const auto loss_of = [this](const Tensor& x, const Tensor& w) {
      return composed::linear_cross_entropy(x, w, targets_);
    };
    return run(hidden_.to(at::kDouble), weight_.to(at::kDouble), loss_of);
  }
  static double off(const Tensor& got, const Tensor& want) {
    return ((got.to(at::kDouble) - want).abs().max() / want.abs().max()).item<double>();
  }

  Tensor hidden_, weight_, targets_;
};

TEST_F(CrossEntropyChunks, has_the_loss_and_gradients_of_all_logits_at_once) {
  ASSERT_LT(logits_rows(kClasses), kSamples);
  const Gradients want = in_double(), got = fused();
  EXPECT_LE(off(got.loss, want.loss), 1e-6);
  EXPECT_LE(off(got.by_hidden, want.by_hidden), 4 * 0x1p-24 * std::sqrt(kClasses));
  EXPECT_LE(off(got.by_weight, want.by_weight), 4 * 0x1p-24 * std::sqrt(kClasses));
}

TEST_F(CrossEntropyChunks, computes_only_the_gradients_that_are_wanted) {
  const Gradients both = fused(), hidden = fused(true, false), weight = fused(false, true);
  EXPECT_TRUE(hidden.by_hidden.equal(both.by_hidden));
  EXPECT_FALSE(hidden.by_weight.defined());
  EXPECT_TRUE(weight.by_weight.equal(both.by_weight));
  EXPECT_FALSE(weight.by_hidden.defined());
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(
      linear_cross_entropy(hidden_, weight_, targets_, MatmulBackend::Mkl).equal(both.loss));
}

TEST_F(CrossEntropyChunks, has_rounded_gradients_under_autocast) {
  const Gradients want = in_double();
  Gradients got;
  {
    const amp::AutocastGuard autocast(at::kCPU, at::kBFloat16);
    got = fused();
  }
  EXPECT_LE(off(got.loss, want.loss), 0x1p-7);
  EXPECT_LE(off(got.by_hidden, want.by_hidden), 0x1p-5);
  EXPECT_LE(off(got.by_weight, want.by_weight), 0x1p-5);
  EXPECT_GT(off(got.by_hidden, want.by_hidden), 1e-5) << "not rounded";
}

TEST_F(CrossEntropyChunks, never_holds_all_logits) {
  constexpr Index kLogits = kClasses * kSamples * Index{sizeof(float)};
  const memory::MemoryMeter meter;
  const Index before = meter.use().current;
  fused();
  EXPECT_LT(meter.use().peak - before, kLogits);
  meter.reset_peak();
  {
    const at::NoGradGuard no_grad;
    linear_cross_entropy(hidden_, weight_, targets_, MatmulBackend::Mkl);
  }
  EXPECT_LT(meter.use().peak - before, kLogits);
}

TEST_F(CrossEntropyChunks, has_one_chunk_for_a_small_vocabulary_and_no_row_less_than_one) {
  EXPECT_GE(logits_rows(512), 8 * 1024);
  EXPECT_EQ(logits_rows(49'152) % 64, 0);
  EXPECT_EQ(logits_rows(Index{1} << 40), 1);
}

}  // namespace
}  // namespace hone::nn
