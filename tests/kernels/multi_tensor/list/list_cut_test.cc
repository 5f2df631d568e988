// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/list/list_cut.h"

#include <gtest/gtest.h>

#include <mutex>

#include "hone/core/thread/thread_pool.h"
#include "tests/support/watched_executor.h"

namespace hone::kernels {
namespace {

// Nothing is read, so there need not be memory.
std::vector<TensorView> views_of(const std::vector<Index>& sizes) {
  std::vector<TensorView> views;
  for (const Index n : sizes) views.emplace_back(nullptr, Dtype::Float32, Shape{n});
  return views;
}

void expect_covers(const std::vector<Index>& sizes) {
  const auto views = views_of(sizes);
  const ListCut cut(views);
  ASSERT_EQ(cut.tensors(), static_cast<Index>(sizes.size()));
  std::vector<Chunk> seen(static_cast<std::size_t>(cut.chunks()));
  std::mutex mutex;
  ThreadPool pool(3);
  cut.sweep(pool, [&](const Chunk& chunk, Index number) {
    const std::lock_guard lock(mutex);
    ASSERT_EQ(seen[static_cast<std::size_t>(number)].length, 0) << "twice";
    ASSERT_GT(chunk.length, 0);
    seen[static_cast<std::size_t>(number)] = chunk;
  });
  for (Index i = 0; i < cut.tensors(); ++i) {
    Index next = 0;
    for (Index c = cut.first_chunk(i); c < cut.first_chunk(i + 1); ++c) {
      const Chunk& chunk = seen[static_cast<std::size_t>(c)];
      ASSERT_EQ(chunk.tensor, i);
      ASSERT_EQ(chunk.offset, next);
      next += chunk.length;
    }
    ASSERT_EQ(next, sizes[static_cast<std::size_t>(i)]) << i;
    ASSERT_LE(cut.first_chunk(i + 1) - cut.first_chunk(i), ListCut::kMostChunks);
  }
}

TEST(ListCut, has_every_element_once) {
  constexpr Index kMost = kChunkElements * ListCut::kMostChunks;
  expect_covers({});
  expect_covers({0});
  expect_covers({0, 0, 5, 0});
  expect_covers({kChunkElements, 1, kChunkElements - 1, 1});
  expect_covers({0, kChunkElements + 1, 0, 0, 7, 3 * kChunkElements, 2 * kChunkElements, 0});
  expect_covers({kMost - 1, kMost, kMost + 1, 3 * kMost + 5, Index{1} << 40});
  std::vector<Index> mixed;
  for (Index i = 0; i < 3000; ++i) mixed.push_back(i * i % 40'009);
  expect_covers(mixed);
}

TEST(ListCut, fills_units_with_small_tensors_and_cuts_large_ones) {
  const auto tasks = [](const std::vector<Index>& sizes) {
    const auto views = views_of(sizes);
    hone::test::WatchedExecutor executor;
    ListCut(views).sweep(executor, [](const Chunk&, Index) {});
    return executor.chunks;
  };
  EXPECT_EQ(tasks(std::vector<Index>(2000, 1024)), 125);
  EXPECT_EQ(tasks(std::vector<Index>(24, Index{1} << 20)), 24 * 64);
  EXPECT_EQ(tasks({5, 2 * kChunkElements, 5, 5}), 4);
  EXPECT_EQ(tasks({}), 0);
}

// Per-chunk sums stay small however large a tensor is.
TEST(ListCut, chunks_of_the_largest_tensors_grow) {
  const auto views = views_of({Index{1} << 40});
  EXPECT_EQ(ListCut(views).chunks(), ListCut::kMostChunks);
}

}  // namespace
}  // namespace hone::kernels
