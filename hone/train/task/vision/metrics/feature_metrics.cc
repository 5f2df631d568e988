// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/metrics/feature_metrics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <stop_token>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hone/core/check.h"

namespace hone::task {
namespace {

using torch::Tensor;

// Contiguous fp64.
Tensor checked(const Tensor& features) {
  HONE_CHECK(features.defined() && features.dim() == 2 && features.numel() > 0 &&
                 features.is_cpu() && features.is_floating_point(),
             "features", "a CPU tensor [images, channels] of floating-point numbers",
             features.defined() ? c10::str(features.sizes()) : "none");
  HONE_REQUIRE(at::isfinite(features).all().item<bool>(), "features",
               "They have NaN or infinite values.");
  return features.detach().to(at::kDouble).contiguous();
}

void check_labels(const Tensor& features, std::span<const Index> labels) {
  HONE_CHECK(static_cast<Index>(labels.size()) == features.size(0), "labels",
             concat(features.size(0), " of them"), labels.size());
  for (const Index label : labels) HONE_CHECK(label >= 0, "labels", "at least 0", label);
}

// The number of each image's class among the classes that occur, int64 [images], and how many these
// are.
std::pair<Tensor, Index> compact(std::span<const Index> labels) {
  std::map<Index, Index> numbers;
  for (const Index label : labels) numbers.emplace(label, 0);
  Index count = 0;
  for (auto& [label, number] : numbers) number = count++;
  const Tensor out = at::empty({static_cast<Index>(labels.size())}, at::kLong);
  auto* const to = out.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) to[i] = numbers.at(labels[i]);
  return {out, count};
}

// The class of most of the neighbors, which are given from the nearest one on.
Index vote(std::span<const Index> nearest) {
  std::unordered_map<Index, Index> votes;
  for (const Index label : nearest) ++votes[label];
  Index best = nearest.front();
  for (const Index label : nearest) {
    if (votes[label] > votes[best]) best = label;
  }
  return best;
}

// The images with the largest similarities from the first on, without `self`.
std::vector<Index> nearest_images(std::span<const double> similarities, Index self, Index count) {
  std::vector<Index> order;
  order.reserve(similarities.size());
  for (Index i = 0; i < std::ssize(similarities); ++i) {
    if (i != self) order.push_back(i);
  }
  const auto is_nearer = [&](Index a, Index b) {
    const double x = similarities[static_cast<std::size_t>(a)];
    const double y = similarities[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), is_nearer);
  order.resize(static_cast<std::size_t>(count));
  return order;
}

}  // namespace

std::optional<double> fisher_ratio(const Tensor& features, std::span<const Index> labels,
                                   double ridge) {
  const Tensor x = checked(features);
  check_labels(x, labels);
  HONE_CHECK(ridge >= 0 && std::isfinite(ridge), "fisher_ratio", "a ridge of at least 0", ridge);
  const auto [numbers, classes] = compact(labels);
  if (classes < 2) return std::nullopt;
  const Index channels = x.size(1);
  const Tensor counts = numbers.bincount({}, classes).to(at::kDouble).unsqueeze(1);
  const Tensor sums = at::zeros({classes, channels}, at::kDouble).index_add_(0, numbers, x);
  const Tensor means = sums / counts;
  const Tensor within = x - means.index_select(0, numbers);
  const Tensor scatter = within.t().mm(within);
  const double size = scatter.trace().item<double>() / static_cast<double>(channels);
  const auto [root, info] =
      at::linalg_cholesky_ex(scatter + ridge * size * at::eye(channels, at::kDouble));
  if (size == 0 || info.item<int>() != 0) return std::nullopt;
  const Tensor between = (means - x.mean(0)) * counts.sqrt();
  return at::linalg_solve_triangular(root, between.t(), /*upper=*/false)
      .square()
      .sum()
      .item<double>();
}

std::optional<double> neighbor_accuracy(const Tensor& features, std::span<const Index> labels,
                                        Index neighbors, const std::stop_token& stop) {
  constexpr Index kRows = 256;
  const Tensor x = checked(features);
  check_labels(x, labels);
  HONE_CHECK(neighbors > 0, "neighbor_accuracy", "at least one neighbor", neighbors);
  const Index images = x.size(0), count = std::min(neighbors, images - 1);
  if (images < 2) return std::nullopt;
  // Divided by the largest entry first: squares of very small numbers vanish.
  constexpr double kLeast = std::numeric_limits<double>::min();
  const Tensor scaled = x / x.abs().amax({1}, /*keepdim=*/true).clamp_min(kLeast);
  const Tensor unit = scaled / scaled.norm(2, {1}, /*keepdim=*/true).clamp_min(kLeast);
  Index right = 0;
  for (Index first = 0; first < images; first += kRows) {
    if (stop.stop_requested()) {
      throw Error(ErrorCategory::Cancelled, "[eval] The search for neighbors was interrupted.");
    }
    const Index rows = std::min(kRows, images - first);
    const Tensor similarities = unit.narrow(0, first, rows).mm(unit.t()).contiguous();
    const double* const values = similarities.const_data_ptr<double>();
    for (Index i = 0; i < rows; ++i) {
      std::vector<Index> nearest =
          nearest_images({values + i * images, static_cast<std::size_t>(images)}, first + i, count);
      for (Index& image : nearest) image = labels[static_cast<std::size_t>(image)];
      right += vote(nearest) == labels[static_cast<std::size_t>(first + i)];
    }
  }
  return static_cast<double>(right) / static_cast<double>(images);
}

Tensor principal_plane(const Tensor& features) {
  const Tensor given = checked(features);
  const Tensor x = given - given.mean(0, /*keepdim=*/true);
  const bool tall = x.size(0) >= x.size(1);
  // Eigenvectors of the smaller of the two products, in ascending order of their eigenvalues.
  const auto [values, vectors] = at::linalg_eigh(tall ? x.t().mm(x) : x.mm(x.t()));
  const Index size = values.size(0);
  const Tensor plane = at::zeros({x.size(0), 2}, at::kDouble);
  // What the mean's rounding leaves of equal features is none of their directions.
  const double least = std::max(1e-12 * values[size - 1].item<double>(),
                                1e-24 * given.square().sum().item<double>());
  for (Index i = 0; i < std::min<Index>(2, size); ++i) {
    const double value = values[size - 1 - i].item<double>();
    if (!(value > least)) continue;
    const Tensor vector = vectors.select(1, size - 1 - i);
    Tensor direction = tall ? vector : x.t().mv(vector) / std::sqrt(value);
    if (direction[direction.abs().argmax().item<std::int64_t>()].item<double>() < 0) {
      direction = -direction;
    }
    plane.select(1, i).copy_(x.mv(direction));
  }
  return plane;
}

}  // namespace hone::task
