// SPDX-License-Identifier: Apache-2.0
// The kernels together: the triplet loss between the parts of two views, whose negatives are chosen
// and measured under the metric of the anchor's image, and its gradient with respect to all parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/paco/mine_negative.h"
#include "tests/kernels/paco/geometry_support.h"

namespace hone::kernels {
namespace {

using test::Distances;
using test::Doubles;
using test::Metric;
using test::normal_values;
using test::zeros;
using Indices = std::vector<Index>;

// Part k of view 1 is matched with part k of view 2; the pool is all parts, view 1 first; an
// image's own parts are no negatives.
struct Triplets {
  Index batch = 0, parts = 0, dim = 0;
  Doubles z1 = {}, z2 = {};  // [batch, parts, dim]
  double delta = 1;          // absolute
  double share = 0;          // above 0: delta = share |A|^2 / dim instead
  MineMode mode = MineMode::SemiHard;
  double margin = 1;
  Indices label = {};  // [batch] or empty

  Doubles pool() const {
    Doubles rows = z1;
    rows.insert(rows.end(), z2.begin(), z2.end());
    return rows;
  }
  Index rows() const { return batch * parts; }
};

struct Loss {
  double value = 0;
  Doubles z1, z2;  // gradients
  Indices chosen;
};

Metric metric_of(const Triplets& t, Executor& executor) {
  const Doubles factor = test::factor_of(t.batch, t.parts, t.z1, t.z2, executor);
  Doubles delta(static_cast<std::size_t>(t.batch), t.delta);
  const auto of_image = static_cast<std::size_t>(2 * (t.parts - 1) * t.dim);
  for (std::size_t image = 0; t.share > 0 && image < delta.size(); ++image) {
    double square = 0;
    for (std::size_t i = 0; i < of_image; ++i)
      square += factor[image * of_image + i] * factor[image * of_image + i];
    delta[image] = t.share * square / static_cast<double>(t.dim);
  }
  return {t.batch, 2 * (t.parts - 1), t.dim, factor, delta, executor};
}

// Differences of the anchors to a row of the pool each.
Doubles differences(const Triplets& t, const Indices& rows) {
  const Doubles pool = t.pool();
  Doubles x = t.z1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t at = i / static_cast<std::size_t>(t.dim);
    x[i] -= pool[static_cast<std::size_t>(rows[at] * t.dim) + i % static_cast<std::size_t>(t.dim)];
  }
  return x;
}

Indices choose(const Triplets& t, const Metric& metric, const Doubles& positive_q,
               void (*run)(const MineNegativeArgs&, Executor&), Executor& executor) {
  const Doubles pool = t.pool();
  Indices owner, pool_label, index(static_cast<std::size_t>(t.rows()));
  std::vector<std::uint8_t> found(index.size());
  for (Index row = 0; row < 2 * t.rows(); ++row) {
    owner.push_back(row / t.parts % t.batch);
    if (!t.label.empty()) pool_label.push_back(t.label[static_cast<std::size_t>(owner.back())]);
  }
  run({.batch = t.batch,
       .parts = t.parts,
       .rank = metric.rank,
       .dim = t.dim,
       .pool_rows = 2 * t.rows(),
       .anchor = t.z1.data(),
       .positive_q = positive_q.data(),
       .pool = pool.data(),
       .owner = owner.data(),
       .pool_label = t.label.empty() ? nullptr : pool_label.data(),
       .anchor_label = t.label.empty() ? nullptr : t.label.data(),
       .factor = metric.factor.data(),
       .chol = metric.chol.data(),
       .delta = metric.delta.data(),
       .mode = t.mode,
       .index = index.data(),
       .found = found.data()},
      executor);
  for (std::size_t at = 0; at < index.size(); ++at) index[at] = found[at] != 0 ? index[at] : -1;
  return index;
}

// The mean over the anchors of max(0, d_positive - d_negative + margin), and d loss / d q of both;
// an anchor without a negative counts as 0.
double hinge(const Triplets& t, const Indices& chosen, const Doubles& positive_q,
             const Doubles& negative_q, Doubles& by_positive, Doubles& by_negative) {
  double sum = 0;
  for (std::size_t at = 0; at < chosen.size(); ++at) {
    const double positive = std::sqrt(positive_q[at]), negative = std::sqrt(negative_q[at]);
    const double excess = positive - negative + t.margin;
    if (chosen[at] < 0 || excess <= 0) continue;
    sum += excess;
    if (positive > 0) by_positive[at] = 1 / (2 * positive * static_cast<double>(t.rows()));
    if (negative > 0) by_negative[at] = -1 / (2 * negative * static_cast<double>(t.rows()));
  }
  return sum / static_cast<double>(t.rows());
}

// Adds the gradients by the differences of the anchors to `rows`.
void add_differences(const Triplets& t, const Indices& rows, const Doubles& by_x, Loss& loss) {
  for (std::size_t i = 0; i < by_x.size(); ++i) {
    const std::size_t at = i / static_cast<std::size_t>(t.dim);
    const auto row = static_cast<std::size_t>(rows[at] % t.rows() * t.dim);
    loss.z1[i] += by_x[i];
    (rows[at] < t.rows() ? loss.z1 : loss.z2)[row + i % static_cast<std::size_t>(t.dim)] -= by_x[i];
  }
}

Indices positives_of(const Triplets& t) {
  Indices rows;
  for (Index at = 0; at < t.rows(); ++at) rows.push_back(t.rows() + at);
  return rows;
}

// The row that stands in where an anchor has no negative; its gradient is zero.
Indices or_first(Indices rows) {
  for (Index& row : rows) row = std::max<Index>(row, 0);
  return rows;
}

Loss loss_of(const Triplets& t, Executor& executor = serial_executor()) {
  const Metric metric = metric_of(t, executor);
  Loss loss{0, zeros(t.rows() * t.dim), zeros(t.rows() * t.dim), {}};
  const Indices positives = positives_of(t);
  const Distances near = test::distances_of(metric, differences(t, positives), executor);
  loss.chosen = choose(t, metric, near.q, mine_negative, executor);
  const Indices negatives = or_first(loss.chosen);
  const Distances far = test::distances_of(metric, differences(t, negatives), executor);
  Doubles by_near(near.q.size()), by_far(near.q.size());
  loss.value = hinge(t, loss.chosen, near.q, far.q, by_near, by_far);

  auto grads = test::grads_of(metric, near, by_near, executor);
  const auto more = test::grads_of(metric, far, by_far, executor);
  add_differences(t, positives, grads.x, loss);
  add_differences(t, negatives, more.x, loss);
  const std::size_t of_image = metric.factor.size() / metric.delta.size();
  for (std::size_t i = 0; i < grads.factor.size(); ++i) {
    grads.factor[i] += more.factor[i];
    const double by_delta = grads.delta[i / of_image] + more.delta[i / of_image];
    grads.factor[i] += by_delta * t.share * 2 * metric.factor[i] / static_cast<double>(t.dim);
  }
  part_factor_grad({.batch = t.batch,
                    .parts = t.parts,
                    .dim = t.dim,
                    .grad_factor = grads.factor.data(),
                    .grad_z1 = loss.z1.data(),
                    .grad_z2 = loss.z2.data()},
                   executor);
  return loss;
}

// The same by dense matrices: q = x^T Sigma^-1 x by elimination, with d q / d Sigma = -w w^T
// carried to the centered parts, of which Sigma is the sum of squares.
class DenseLoss {
 public:
  explicit DenseLoss(const Triplets& t)
      : t_(t), dim_(static_cast<std::size_t>(t.dim)), parts_(static_cast<std::size_t>(t.parts)) {}

  Loss run() {
    Loss loss{0, zeros(t_.rows() * t_.dim), zeros(t_.rows() * t_.dim), {}};
    const auto ignore_executor = [](const MineNegativeArgs& args, Executor&) {
      mine_negative_ref(args);
    };
    const Metric metric = metric_of(t_, serial_executor());
    const Indices positives = positives_of(t_);
    const Doubles near_w = solve_all(metric, positives), near_q = q_;
    loss.chosen = choose(t_, metric, near_q, ignore_executor, serial_executor());
    const Indices negatives = or_first(loss.chosen);
    const Doubles far_w = solve_all(metric, negatives), far_q = q_;
    Doubles by_near(near_q.size()), by_far(near_q.size());
    loss.value = hinge(t_, loss.chosen, near_q, far_q, by_near, by_far);
    add(near_w, by_near, positives, loss);
    add(far_w, by_far, negatives, loss);
    return loss;
  }

 private:
  // delta I + the mean of the views' covariances, from centered parts.
  Doubles sigma_of(const Metric& metric, std::size_t image) const {
    Doubles sigma = zeros(t_.dim * t_.dim);
    for (std::size_t i = 0; i < dim_; ++i) sigma[i * dim_ + i] = metric.delta[image];
    for (const Doubles* z : {&t_.z1, &t_.z2}) {
      const Doubles centered = centered_parts(*z, image);
      for (std::size_t k = 0; k < parts_; ++k)
        for (std::size_t i = 0; i < dim_; ++i)
          for (std::size_t j = 0; j < dim_; ++j)
            sigma[i * dim_ + j] += centered[k * dim_ + i] * centered[k * dim_ + j] / weight();
    }
    return sigma;
  }
  double weight() const { return static_cast<double>(2 * (t_.parts - 1)); }

  Doubles centered_parts(const Doubles& z, std::size_t image) const {
    const std::size_t first = image * parts_ * dim_;
    Doubles out(z.begin() + static_cast<Index>(first),
                z.begin() + static_cast<Index>(first + parts_ * dim_));
    for (std::size_t c = 0; c < dim_; ++c) {
      double mean = 0;
      for (std::size_t k = 0; k < parts_; ++k) mean += out[k * dim_ + c];
      for (std::size_t k = 0; k < parts_; ++k)
        out[k * dim_ + c] -= mean / static_cast<double>(t_.parts);
    }
    return out;
  }

  // w = Sigma^-1 x of the differences to `rows`; q_ = x^T w.
  Doubles solve_all(const Metric& metric, const Indices& rows) {
    const Doubles x = differences(t_, rows);
    Doubles result;
    q_.clear();
    for (std::size_t at = 0; at < rows.size(); ++at) {
      const Doubles own(x.data() + at * dim_, x.data() + (at + 1) * dim_);
      const Doubles w = test::solve_dense(sigma_of(metric, at / parts_), own);
      q_.push_back(test::dot(own, w));
      result.insert(result.end(), w.begin(), w.end());
    }
    return result;
  }

  void add(const Doubles& w, const Doubles& by_q, const Indices& rows, Loss& loss) const {
    Doubles by_x = w;
    for (std::size_t i = 0; i < w.size(); ++i) by_x[i] *= 2 * by_q[i / dim_];
    add_differences(t_, rows, by_x, loss);
    for (std::size_t at = 0; at < rows.size(); ++at) {
      const std::size_t image = at / parts_;
      for (auto [z, by_z] : {std::pair{&t_.z1, &loss.z1}, std::pair{&t_.z2, &loss.z2}}) {
        const Doubles centered = centered_parts(*z, image);
        for (std::size_t k = 0; k < parts_; ++k) {
          double along = 0;
          for (std::size_t c = 0; c < dim_; ++c) along += w[at * dim_ + c] * centered[k * dim_ + c];
          for (std::size_t c = 0; c < dim_; ++c)
            (*by_z)[(image * parts_ + k) * dim_ + c] -=
                2 * by_q[at] * along * w[at * dim_ + c] / weight();
        }
      }
    }
  }

  const Triplets& t_;
  std::size_t dim_, parts_;
  Doubles q_;
};

Triplets two_images() {
  return {.batch = 2,
          .parts = 2,
          .dim = 2,
          .z1 = {1, 0, -1, 0, 4, 0, 2, 0},
          .z2 = {0, 1, 0, -1, 3, 1, 3, -1},
          .label = {0, 1}};
}

TEST(PartTriplets, of_two_images_as_by_hand_with_hardest_negatives) {
  Triplets t = two_images();
  t.mode = MineMode::Hardest;
  const Loss loss = loss_of(t);
  EXPECT_NEAR(loss.value, 0.646446609, 1e-9);
  const Doubles by_z1{.4914976, -.0937500, -.0129442, -.0312500,
                      .0129442, .0312500,  -.4914976, .0937500};
  const Doubles by_z2{-.09375, .09375, -.03125, .03125, .03125, -.03125, .09375, -.09375};
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(loss.z1[i], by_z1[i], 5e-8) << i;
    EXPECT_NEAR(loss.z2[i], by_z2[i], 5e-8) << i;
  }
}

// The negatives beyond the positive are at 1.581139 twice; the lower row is taken.
TEST(PartTriplets, of_two_images_as_by_hand_with_semi_hard_negatives) {
  Triplets t = two_images();
  const Loss loss = loss_of(t);
  EXPECT_NEAR(loss.value, 0.209430585, 1e-9);
  const Doubles by_first_image{.3309208, .0248354, -.0478069, -.0707785};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(loss.z1[i], by_first_image[i], 5e-8) << i;
  EXPECT_EQ(loss.chosen[0], 6) << "the first of two rows at the same distance";
  t.margin = .2;
  EXPECT_EQ(loss_of(t).value, 0);
}

TEST(PartTriplets, of_images_with_one_label_have_no_negatives) {
  Triplets t = two_images();
  t.label = {5, 5};
  const Loss loss = loss_of(t);
  EXPECT_EQ(loss.value, 0);
  EXPECT_EQ(loss.chosen, Indices(4, -1));
  EXPECT_EQ(loss.z1, zeros(8));
}

TEST(PartTriplets, equal_dense_loops_in_loss_and_gradient) {
  std::uint64_t seed = 1;
  for (const auto& [batch, parts, dim] :
       {std::tuple<Index, Index, Index>{2, 2, 3}, {3, 4, 16}, {5, 3, 9}, {8, 4, 24}, {4, 6, 40}}) {
    for (const double delta : {0.0201, 1.0}) {
      for (const MineMode mode : {MineMode::SemiHard, MineMode::Hardest}) {
        for (const bool has_labels : {false, true}) {
          Triplets t{.batch = batch,
                     .parts = parts,
                     .dim = dim,
                     .z1 = normal_values(batch * parts * dim, ++seed),
                     .z2 = normal_values(batch * parts * dim, ++seed),
                     .delta = delta,
                     .mode = mode,
                     .margin = 10};
          for (Index image = 0; has_labels && image < batch; ++image) t.label.push_back(image % 2);
          const Loss got = loss_of(t), want = DenseLoss(t).run();
          ASSERT_EQ(got.chosen, want.chosen);
          ASSERT_GT(want.value, 0);
          ASSERT_NEAR(got.value / want.value, 1, 1e-12);
          test::expect_near(got.z1, want.z1, 1e-10, "view 1");
          test::expect_near(got.z2, want.z2, 1e-10, "view 2");
        }
      }
    }
  }
}

TEST(PartTriplets, with_a_relative_delta_gain_nothing_by_scaling_all_parts) {
  Triplets t{.batch = 4,
             .parts = 4,
             .dim = 20,
             .z1 = normal_values(4 * 4 * 20, 90),
             .z2 = normal_values(4 * 4 * 20, 91),
             .share = 1,
             .margin = 10};
  const Loss loss = loss_of(t);
  double along = 0, sizes = 0;
  for (std::size_t i = 0; i < t.z1.size(); ++i) {
    along += t.z1[i] * loss.z1[i] + t.z2[i] * loss.z2[i];
    sizes += std::abs(t.z1[i] * loss.z1[i]) + std::abs(t.z2[i] * loss.z2[i]);
  }
  EXPECT_GT(sizes, 0.1);
  EXPECT_NEAR(along, 0, 1e-10 * sizes);
  for (Doubles* z : {&t.z1, &t.z2})
    for (double& value : *z) value *= 7;
  const Loss scaled = loss_of(t);
  EXPECT_EQ(scaled.chosen, loss.chosen);
  EXPECT_NEAR(scaled.value / loss.value, 1, 1e-12);
}

TEST(PartTriplets, have_the_same_bits_for_any_number_of_workers) {
  const Triplets t{.batch = 8,
                   .parts = 4,
                   .dim = 64,
                   .z1 = normal_values(8 * 4 * 64, 92),
                   .z2 = normal_values(8 * 4 * 64, 93),
                   .margin = 20};
  ThreadPool pool(7);
  const Loss one = loss_of(t), seven = loss_of(t, pool);
  EXPECT_EQ(seven.value, one.value);
  EXPECT_EQ(seven.z1, one.z1);
  EXPECT_EQ(seven.z2, one.z2);
}

TEST(PartTriplets, of_degenerate_parts_have_no_nan) {
  const Doubles same(3 * 4 * 8, 0.25), some = normal_values(3 * 4 * 8, 94);
  for (const auto& [z1, z2] : {std::pair{same, same}, std::pair{zeros(96), zeros(96)},
                               std::pair{some, some}, std::pair{some, same}}) {
    for (const MineMode mode : {MineMode::SemiHard, MineMode::Hardest}) {
      const Loss loss = loss_of(
          {.batch = 3, .parts = 4, .dim = 8, .z1 = z1, .z2 = z2, .delta = 1e-3, .mode = mode});
      EXPECT_TRUE(std::isfinite(loss.value));
      for (std::size_t i = 0; i < 96; ++i) {
        ASSERT_TRUE(std::isfinite(loss.z1[i]));
        ASSERT_TRUE(std::isfinite(loss.z2[i]));
      }
    }
  }
}

}  // namespace
}  // namespace hone::kernels
