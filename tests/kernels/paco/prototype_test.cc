// SPDX-License-Identifier: Apache-2.0
// Moving means of class covariances by hand, by their closed form and by properties.
#include "hone/kernels/paco/prototype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/paco/cov_oracle.h"

namespace hone::kernels {
namespace {

using oracle::covariance;
using oracle::Matrix;
using oracle::random_doubles;
using oracle::Real;
using oracle::Values;
using oracle::weighted_sum;
using test::error_of;
using testing::HasSubstr;
using Indices = std::vector<Index>;

struct Images {
  Index parts = 0, dim = 0;
  double epsilon = 0;
  Values z1 = {}, z2 = {};
  Indices label = {};

  TwoViews views() const {
    return {.batch = static_cast<Index>(label.size()),
            .parts = parts,
            .dim = dim,
            .z1 = z1.data(),
            .z2 = z2.data(),
            .epsilon = epsilon};
  }
  // ½(Σ_1 + Σ_2).
  Matrix mean(std::size_t image) const {
    const auto size = parts * dim, begin = static_cast<Index>(image) * size;
    const auto of = [&](const Values& z) {
      return covariance({z.begin() + begin, z.begin() + begin + size},
                        static_cast<std::size_t>(parts), epsilon);
    };
    return weighted_sum(0.5L, of(z1), 0.5L, of(z2));
  }
};

struct Bank {
  Index classes = 0, dim = 0;
  bool diagonal = false;
  double momentum = 0.9;
  Values matrices =
      Values(static_cast<std::size_t>(classes * dim * (diagonal ? 1 : dim)), std::nan(""));
  Indices counts = Indices(static_cast<std::size_t>(classes));

  void take(const Images& images, Executor& executor = serial_executor()) {
    update_prototypes(images.views(),
                      {.classes = classes,
                       .label = images.label.data(),
                       .momentum = momentum,
                       .diagonal = diagonal,
                       .matrices = matrices.data(),
                       .counts = counts.data()},
                      executor);
  }
};

Images random_images(Index parts, Index dim, Indices label, std::uint64_t seed) {
  const Index count = static_cast<Index>(label.size()) * parts * dim;
  return {.parts = parts,
          .dim = dim,
          .epsilon = 0.125,
          .z1 = random_doubles(count, seed),
          .z2 = random_doubles(count, seed + 1),
          .label = std::move(label)};
}

// Pairs whose mean covariance is (1 + size²) I with epsilon 1.
void add_pair(Images& images, double size, Index label) {
  images.z1.insert(images.z1.end(), {size, 0, -size, 0});
  images.z2.insert(images.z2.end(), {0, size, 0, -size});
  images.label.push_back(label);
}

TEST(Prototypes, first_visit_sets_and_later_ones_move_by_hand) {
  Bank bank{.classes = 3, .dim = 2};
  Images first{.parts = 2, .dim = 2, .epsilon = 1};
  add_pair(first, 0, 1);  // I
  add_pair(first, 1, 1);  // 2 I
  bank.take(first);
  EXPECT_EQ(bank.counts, (Indices{0, 2, 0}));
  for (const std::size_t i : {0u, 3u}) EXPECT_NEAR(bank.matrices[4 + i], 1.1, 1e-15);
  for (const std::size_t i : {1u, 2u}) EXPECT_NEAR(bank.matrices[4 + i], 0, 1e-15);
  Images second{.parts = 2, .dim = 2, .epsilon = 1};
  add_pair(second, std::sqrt(2), 1);  // 3 I
  bank.take(second);
  EXPECT_EQ(bank.counts, (Indices{0, 3, 0}));
  for (const std::size_t i : {0u, 3u}) EXPECT_NEAR(bank.matrices[4 + i], 1.29, 1e-15);
  for (const std::size_t i : {0u, 1u, 2u, 3u, 8u, 9u, 10u, 11u})
    EXPECT_TRUE(std::isnan(bank.matrices[i])) << "not visited, not written";
}

// momentum^(n-1) Σ̄_1 + (1 - momentum) Σ_(j>=2) momentum^(n-j) Σ̄_j, over two batches.
TEST(Prototypes, equal_the_closed_form) {
  for (const double momentum : {0.0, 0.5, 0.9, 1.0}) {
    for (const auto& [parts, dim] : {std::pair<Index, Index>{1, 3}, {2, 1}, {4, 17}, {8, 33}}) {
      const Images batches[] = {random_images(parts, dim, {2, 0, 2, 2, 0, 2}, 1),
                                random_images(parts, dim, {0, 2, 0}, 5)};
      Bank bank{.classes = 3, .dim = dim, .momentum = momentum};
      for (const Images& images : batches) bank.take(images);
      EXPECT_EQ(bank.counts, (Indices{4, 0, 5}));
      for (const Index of : {0, 2}) {
        std::vector<Matrix> means;
        for (const Images& images : batches) {
          for (std::size_t image = 0; image < images.label.size(); ++image) {
            if (images.label[image] == of) means.push_back(images.mean(image));
          }
        }
        Matrix want(static_cast<std::size_t>(dim));
        for (std::size_t j = 0; j < means.size(); ++j) {
          const Real later =
              std::pow(static_cast<Real>(momentum), static_cast<int>(means.size() - 1 - j));
          want = weighted_sum(1, want, later * (j == 0 ? 1 : 1 - momentum), means[j]);
        }
        for (std::size_t i = 0; i < want.at.size(); ++i) {
          ASSERT_NEAR(bank.matrices[static_cast<std::size_t>(of) * want.at.size() + i],
                      static_cast<double>(want.at[i]), 1e-14);
        }
      }
    }
  }
}

// momentumⁿ P + (1 - momentum) Σ_j momentum^(n-j) Σ̄_j for a class that was seen before.
TEST(Prototypes, start_from_the_matrix_of_a_class_that_was_seen) {
  const Index dim = 3;
  const Images images = random_images(3, dim, {0, 0}, 9);
  Bank bank{.classes = 1, .dim = dim};
  const Values before = random_doubles(dim * dim, 11);
  bank.matrices = before;
  bank.counts = {7};
  bank.take(images);
  EXPECT_EQ(bank.counts, (Indices{9}));
  for (std::size_t i = 0; i < before.size(); ++i) {
    const Real want =
        0.81L * before[i] + 0.09L * images.mean(0).at[i] + 0.1L * images.mean(1).at[i];
    EXPECT_NEAR(bank.matrices[i], static_cast<double>(want), 1e-15);
  }
}

TEST(Prototypes, of_diagonals_are_the_diagonals) {
  const Index dim = 11;
  const auto size = static_cast<std::size_t>(dim);
  const Images images = random_images(4, dim, {1, 0, 1, 1}, 13);
  Bank full{.classes = 2, .dim = dim}, diagonal{.classes = 2, .dim = dim, .diagonal = true};
  full.take(images), diagonal.take(images);
  EXPECT_EQ(full.counts, diagonal.counts);
  for (std::size_t i = 0; i < 2 * size; ++i)
    EXPECT_NEAR(diagonal.matrices[i], full.matrices[i * size + i % size], 1e-15);
}

TEST(Prototypes, stay_symmetric_bit_for_bit) {
  for (const Index dim : {2, 3, 9, 31}) {
    const auto size = static_cast<std::size_t>(dim);
    Bank bank{.classes = 1, .dim = dim};
    bank.take(random_images(5, dim, {0, 0, 0, 0}, 15));
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < i; ++j)
        ASSERT_EQ(bank.matrices[i * size + j], bank.matrices[j * size + i]);
    }
  }
}

TEST(Prototypes, have_the_same_bits_for_any_number_of_workers) {
  ThreadPool pool(3);
  const Images images = random_images(4, 70, {0, 1, 2, 0, 1, 2, 2, 2, 1, 0}, 17);
  Bank one{.classes = 3, .dim = 70}, three = one;
  one.take(images), three.take(images, pool);
  EXPECT_EQ(one.matrices, three.matrices);
  EXPECT_EQ(one.counts, three.counts);
}

TEST(PrototypesHostile, wrong_arguments_are_refused_and_change_nothing) {
  const Values before(8, 3.0);
  const auto error = [&](Index label, double momentum, double epsilon) {
    Images images = random_images(2, 2, {0, label}, 19);
    images.epsilon = epsilon;
    Bank bank{.classes = 2, .dim = 2, .momentum = momentum};
    bank.matrices = before;
    const std::string text = error_of([&] { bank.take(images); });
    EXPECT_EQ(bank.matrices, before);
    EXPECT_EQ(bank.counts, (Indices{0, 0}));
    return text;
  };
  EXPECT_THAT(error(2, 0.9, 1),
              HasSubstr("[update_prototypes] expected labels in [0, 2), got 2 for image 1"));
  EXPECT_THAT(error(-1, 0.9, 1), HasSubstr("expected labels in [0, 2), got -1 for image 1"));
  for (const double bad : {-0.1, 1.5, std::nan("")})
    EXPECT_THAT(error(0, bad, 1), HasSubstr("[update_prototypes] expected momentum in [0, 1]"));
  EXPECT_THAT(error(0, 0.9, 0),
              HasSubstr("[update_prototypes] expected a finite epsilon > 0, got 0"));
}

TEST(PrototypesHostile, an_empty_batch_changes_nothing) {
  Bank bank{.classes = 1, .dim = 2};
  bank.matrices = {1, 2, 3, 4};
  bank.take({.parts = 2, .dim = 2, .epsilon = 1});
  EXPECT_EQ(bank.matrices, (Values{1, 2, 3, 4}));
  EXPECT_EQ(bank.counts, Indices{0});
}

}  // namespace
}  // namespace hone::kernels
