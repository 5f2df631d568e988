// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/metrics/feature_metrics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "hone/core/error.h"
#include "tests/support/stop_flag.h"

namespace hone::task {
namespace {

using torch::Tensor;
using Labels = std::vector<Index>;

Tensor column(std::vector<double> values) {
  return at::tensor(values, at::kDouble).view({static_cast<Index>(values.size()), 1});
}

struct Cloud {
  Tensor features;
  Labels labels;
};
// Random points around a center for each of the classes 0, 10, 20, ….
Cloud draw(Index images, Index channels, Index classes, double spread) {
  at::manual_seed(5);
  const Tensor centers = at::randn({classes, channels}, at::kDouble);
  Cloud cloud{spread * at::randn({images, channels}, at::kDouble), {}};
  for (Index i = 0; i < images; ++i) {
    cloud.features[i] += centers[i % classes];
    cloud.labels.push_back(10 * (i % classes));
  }
  return cloud;
}

// S_w = 4, S_b = 100.
TEST(FisherRatio, has_the_value_of_the_closed_form) {
  const Tensor features = column({0, 2, 10, 12});
  const Labels labels{0, 0, 1, 1};
  EXPECT_NEAR(*fisher_ratio(features, labels, 0), 25, 1e-12);
  EXPECT_NEAR(*fisher_ratio(features, labels), 25 / 1.001, 1e-12);
  EXPECT_NEAR(*fisher_ratio(features, Labels{7, 7, 3, 3}, 0), 25, 1e-12) << "names do not matter";
}

// Gaussian elimination of (S_w + lambda I) X = S_b with scatter matrices from scalar loops.
TEST(FisherRatio, agrees_with_scalar_loops) {
  const Index images = 40, d = 5;
  const Cloud cloud = draw(images, d, 4, 0.7);
  const auto x = cloud.features.accessor<double, 2>();
  std::map<Index, std::vector<double>> means;
  std::map<Index, double> counts;
  std::vector<double> mean(d);
  for (Index i = 0; i < images; ++i) {
    const Index label = cloud.labels[static_cast<std::size_t>(i)];
    means[label].resize(d);
    ++counts[label];
    for (Index k = 0; k < d; ++k) means[label][k] += x[i][k], mean[k] += x[i][k] / images;
  }
  for (auto& [label, sum] : means) {
    for (double& value : sum) value /= counts[label];
  }
  std::vector<std::vector<double>> a(d, std::vector<double>(2 * d));  // [S_w | S_b]
  for (Index j = 0; j < d; ++j) {
    for (Index k = 0; k < d; ++k) {
      for (Index i = 0; i < images; ++i) {
        const auto& own = means[cloud.labels[static_cast<std::size_t>(i)]];
        a[j][k] += (x[i][j] - own[j]) * (x[i][k] - own[k]);
      }
      for (const auto& [label, own] : means) {
        a[j][d + k] += counts[label] * (own[j] - mean[j]) * (own[k] - mean[k]);
      }
    }
  }
  double trace = 0;
  for (Index j = 0; j < d; ++j) trace += a[j][j];
  for (Index j = 0; j < d; ++j) a[j][j] += 1e-3 * trace / d;
  for (Index pivot = 0; pivot < d; ++pivot) {
    for (Index j = 0; j < d; ++j) {
      if (j == pivot) continue;
      const double factor = a[j][pivot] / a[pivot][pivot];
      for (Index k = 0; k < 2 * d; ++k) a[j][k] -= factor * a[pivot][k];
    }
  }
  double expected = 0;
  for (Index j = 0; j < d; ++j) expected += a[j][d + j] / a[j][j];
  EXPECT_NEAR(*fisher_ratio(cloud.features, cloud.labels), expected, 1e-9 * expected);
}

TEST(FisherRatio, does_not_change_with_scale_shift_and_more_channels_than_images) {
  const Cloud cloud = draw(30, 6, 3, 0.5);
  const double ratio = *fisher_ratio(cloud.features, cloud.labels);
  EXPECT_NEAR(*fisher_ratio(1e6 * cloud.features + 3, cloud.labels), ratio, 1e-6 * ratio);
  const Cloud wide = draw(12, 50, 3, 0.5);
  EXPECT_GT(*fisher_ratio(wide.features, wide.labels), 0);
  EXPECT_FALSE(fisher_ratio(wide.features, wide.labels, 0)) << "S_w is singular";
}

TEST(FisherRatio, is_undefined_for_one_class_and_without_scatter_within) {
  EXPECT_FALSE(fisher_ratio(column({1, 2, 3}), Labels{4, 4, 4}));
  EXPECT_FALSE(fisher_ratio(column({1, 1, 3}), Labels{0, 0, 1}));
}

TEST(NeighborAccuracy, agrees_with_scalar_loops) {
  const Index images = 300, channels = 4;  // more than a block of rows
  const Cloud cloud = draw(images, channels, 5, 0.9);
  const auto x = cloud.features.accessor<double, 2>();
  for (const Index neighbors : {1, 2, 5, 1000}) {
    Index right = 0;
    for (Index i = 0; i < images; ++i) {
      std::vector<std::pair<double, Index>> order;  // (-cosine, image)
      for (Index j = 0; j < images; ++j) {
        double dot = 0, own = 0, other = 0;
        for (Index c = 0; c < channels; ++c) {
          dot += x[i][c] * x[j][c], own += x[i][c] * x[i][c], other += x[j][c] * x[j][c];
        }
        if (j != i) order.emplace_back(-dot / std::sqrt(own * other), j);
      }
      std::ranges::sort(order);
      order.resize(static_cast<std::size_t>(std::min(neighbors, images - 1)));
      std::map<Index, int> votes;
      int most = 0;
      for (const auto& [cosine, j] : order) {
        most = std::max(most, ++votes[cloud.labels[static_cast<std::size_t>(j)]]);
      }
      for (const auto& [cosine, j] : order) {  // the first class with the most votes
        const Index label = cloud.labels[static_cast<std::size_t>(j)];
        if (votes[label] != most) continue;
        right += label == cloud.labels[static_cast<std::size_t>(i)];
        break;
      }
    }
    EXPECT_DOUBLE_EQ(*neighbor_accuracy(cloud.features, cloud.labels, neighbors),
                     static_cast<double>(right) / images)
        << neighbors;
  }
}

// By angle from the first axis: 0 (class 0), 10 (class 1), 30 (class 0) degrees. Of two neighbors
// with a vote each, the nearer decides: all three are wrong, or with one neighbor.
TEST(NeighborAccuracy, breaks_ties_by_the_nearest_and_ignores_length) {
  const auto at_angle = [](double degrees, double length) {
    const double turn = degrees * std::acos(-1.0) / 180;
    return std::vector<double>{length * std::cos(turn), length * std::sin(turn)};
  };
  std::vector<double> values;
  for (const auto& [degrees, length] :
       std::vector<std::pair<double, double>>{{0, 1e-200}, {10, 1}, {30, 1e200}}) {
    for (const double value : at_angle(degrees, length)) values.push_back(value);
  }
  const Tensor features = at::tensor(values, at::kDouble).view({3, 2});
  EXPECT_EQ(*neighbor_accuracy(features, Labels{0, 1, 0}, 2), 0);
  EXPECT_DOUBLE_EQ(*neighbor_accuracy(features, Labels{0, 0, 1}, 2), 2.0 / 3);
}

TEST(NeighborAccuracy, is_undefined_for_one_image_and_stops) {
  EXPECT_FALSE(neighbor_accuracy(column({1}), Labels{0}, 5));
  EXPECT_EQ(*neighbor_accuracy(at::zeros({3, 2}), Labels{0, 0, 0}, 5), 1);
  const hone::test::StopFlag stop{true};
  EXPECT_THROW(neighbor_accuracy(column({1, 2}), Labels{0, 0}, 5, stop), Error);
  EXPECT_THROW(neighbor_accuracy(column({1, 2}), Labels{0, 0}, 0), Error);
}

TEST(PrincipalPlane, of_collinear_points_has_one_axis) {
  const Tensor along = column({-3, 1, 4, 6});
  const Tensor direction = at::tensor({3.0, -4.0, 0.0}, at::kDouble).view({1, 3});
  const Tensor plane = principal_plane(along.mm(direction) + 7);
  EXPECT_TRUE(plane.select(1, 1).eq(0).all().item<bool>());
  // The entry of -4 / 5 becomes positive.
  const Tensor expected = -5 * (along - along.mean()).squeeze(1);
  EXPECT_TRUE(at::allclose(plane.select(1, 0), expected, 1e-12, 1e-9));
}

TEST(PrincipalPlane, keeps_distances_in_a_plane_with_more_channels_or_more_images) {
  at::manual_seed(3);
  const Tensor flat = at::randn({9, 2}, at::kDouble) * at::tensor({5.0, 1.0}, at::kDouble);
  for (const Index channels : {4, 30}) {
    const auto [basis, upper] = at::linalg_qr(at::randn({channels, 2}, at::kDouble));
    const Tensor plane = principal_plane(flat.mm(basis.t()));
    EXPECT_TRUE(at::allclose(at::cdist(plane, plane), at::cdist(flat, flat), 1e-6, 1e-6));
    EXPECT_LT(plane.mean(0).abs().max().item<double>(), 1e-9);
    EXPECT_LT(std::abs(plane.select(1, 0).dot(plane.select(1, 1)).item<double>()), 1e-8);
    EXPECT_GE(plane.select(1, 0).norm().item<double>(), plane.select(1, 1).norm().item<double>());
  }
}

TEST(PrincipalPlane, of_equal_features_and_of_one_channel) {
  EXPECT_TRUE(principal_plane(at::full({5, 3}, 0.1)).eq(0).all().item<bool>());
  EXPECT_TRUE(principal_plane(at::full({1, 3}, 2.0)).eq(0).all().item<bool>());
  const Tensor plane = principal_plane(column({1, 3}));
  EXPECT_TRUE(at::allclose(plane, at::tensor({-1.0, 0.0, 1.0, 0.0}, at::kDouble).view({2, 2})));
}

TEST(FeatureMetrics, refuse_what_is_no_matrix_of_features) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(principal_plane(Tensor()), Error);
  EXPECT_THROW(principal_plane(at::zeros({3})), Error);
  EXPECT_THROW(principal_plane(at::zeros({0, 3})), Error);
  EXPECT_THROW(principal_plane(column({1, kNan})), Error);
  EXPECT_THROW(fisher_ratio(column({1, 2}), Labels{0}), Error);
  EXPECT_THROW(fisher_ratio(column({1, 2}), Labels{0, -1}), Error);
  EXPECT_THROW(fisher_ratio(column({1, 2}), Labels{0, 1}, -1), Error);
}

}  // namespace
}  // namespace hone::task
