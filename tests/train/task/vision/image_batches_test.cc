// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/image_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "hone/core/error.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/train/task/vision/prefetcher.h"
#include "tests/support/program.h"

namespace hone::task {
namespace {

constexpr data::ImageShape kShape = {3, 4, 4};

// Image i has the pixel values i*64 + position, modulo 251.
data::ImagePart numbered(Index count) {
  std::vector<std::uint8_t> labels, pixels;
  for (Index i = 0; i < count; ++i) {
    labels.push_back(static_cast<std::uint8_t>(i));
    for (Index at = 0; at < kShape.values(); ++at) {
      pixels.push_back(static_cast<std::uint8_t>((i * 64 + at) % 251));
    }
  }
  return {kShape, std::move(labels), std::move(pixels)};
}

// Values stay 0 to 255.
ChannelStats unit_stats() { return {{0, 0, 0}, {1 / 255.0, 1 / 255.0, 1 / 255.0}}; }

TEST(MeasureChannels, gives_mean_and_deviation_of_each_channel) {
  const data::ImagePart part({2, 1, 2}, std::vector<std::uint8_t>{0, 0},
                             {0, 255, 51, 51, 0, 255, 51, 51});
  const ChannelStats stats = measure_channels(part, {2, 1, 2});
  EXPECT_NEAR(stats.mean[0], 0.5, 1e-12);
  EXPECT_NEAR(stats.std[0], 0.5, 1e-12);
  EXPECT_NEAR(stats.mean[1], 0.2, 1e-12);
  EXPECT_EQ(stats.std[1], 1) << "a channel of one value";
}

TEST(MeasureChannels, gives_the_same_on_any_number_of_threads) {
  const data::ImagePart part = numbered(300);
  ThreadPool pool(3);
  const ChannelStats serial = measure_channels(part, kShape);
  const ChannelStats parallel = measure_channels(part, kShape, {}, pool);
  EXPECT_EQ(parallel.mean, serial.mean);
  EXPECT_EQ(parallel.std, serial.std);
}

TEST(ImageBatches, take_every_image_once_an_epoch_in_another_order_each) {
  const data::ImagePart part = numbered(23);
  const ImageBatches batches(part, kShape, unit_stats(), 5), other(part, kShape, unit_stats(), 6);
  std::vector<std::vector<Index>> orders(2);
  Index moved = 0;
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    for (Index i = 0; i < 23; ++i) {
      const Index sample = static_cast<Index>(epoch) * 23 + i;
      orders[epoch].push_back(batches.index_of(sample));
      moved += other.index_of(sample) != orders[epoch].back();
    }
    EXPECT_EQ(std::set<Index>(orders[epoch].begin(), orders[epoch].end()).size(), 23u);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_GT(moved, 20);
}

TEST(ImageBatches, normalize_and_give_the_same_sample_whatever_came_before) {
  const data::ImagePart part = numbered(23);
  const ChannelStats stats{{0.25, 0.5, 0.5}, {0.5, 2, 1}};
  const ImageBatches batches(part, kShape, stats, 5,
                             {.crop = "random", .crop_padding = 2, .flip = 0.5});
  const ImageValues all = batches.make(0, 40), one = batches.make(31, 1);
  const auto size = static_cast<std::size_t>(kShape.values());
  EXPECT_EQ(one.labels[0], all.labels[31]);
  EXPECT_EQ(one.images, std::vector<float>(all.images.begin() + 31 * kShape.values(),
                                           all.images.begin() + 32 * kShape.values()));
  const ImageBatches plain(part, kShape, stats, 5);
  const ImageValues first = plain.make(7, 1);
  const Index index = plain.index_of(7);
  EXPECT_EQ(first.labels[0], index);
  for (std::size_t at = 0; at < size; ++at) {
    const std::size_t channel = at / 16;
    const double value = static_cast<double>((index * 64 + static_cast<Index>(at)) % 251) / 255;
    EXPECT_NEAR(first.images[at], (value - stats.mean[channel]) / stats.std[channel], 1e-6);
  }
}

TEST(ImageBatches, augment_by_whole_shifts_and_mirrors_only) {
  const data::ImagePart part = numbered(3);
  const ImageBatches plain(part, kShape, unit_stats(), 5);
  const ImageBatches moved(part, kShape, unit_stats(), 5,
                           {.crop = "random", .crop_padding = 1, .flip = 0.5});
  std::set<std::tuple<Index, Index, bool>> seen;
  for (Index sample = 0; sample < 200; ++sample) {
    const std::vector<float> from = plain.make(sample, 1).images, to = moved.make(sample, 1).images;
    Index matches = 0;
    for (Index down = -1; down <= 1; ++down) {
      for (Index right = -1; right <= 1; ++right) {
        for (const bool flip : {false, true}) {
          bool same = true;
          for (Index at = 0; at < kShape.values(); ++at) {
            const Index y = at / 4 % 4 + down, x = (flip ? 3 - at % 4 : at % 4) + right;
            const bool inside = y >= 0 && y < 4 && x >= 0 && x < 4;
            const Index source = at / 16 * 16 + y * 4 + x;
            same = same && to[static_cast<std::size_t>(at)] ==
                               (inside ? from[static_cast<std::size_t>(source)] : 0);
          }
          if (!same) continue;
          ++matches;
          seen.insert({down, right, flip});
        }
      }
    }
    EXPECT_EQ(matches, 1) << sample;
  }
  EXPECT_EQ(seen.size(), 18u) << "every shift, mirrored and not";
}

// Values are whole numbers here, so that a pixel is found by where its geometry says.
TEST(ImageBatches, give_views_of_the_same_image_and_say_where_their_pixels_come_from) {
  const data::ImagePart part = numbered(5);
  const ImageBatches plain(part, kShape, unit_stats(), 5);
  const ImageBatches pairs(part, kShape, unit_stats(), 5,
                           {.side = 2,
                            .crop = "random",
                            .flip = 0.5,
                            .shuffle = 1,
                            .shuffle_cells = 2,
                            .shuffle_grid = 1},
                           /*views=*/2);
  EXPECT_EQ(pairs.shape(), (data::ImageShape{3, 2, 2}));
  Index differ = 0;
  for (Index sample = 0; sample < 40; ++sample) {
    const std::vector<float> whole = plain.make(sample, 1).images;
    const ImageValues got = pairs.make(sample, 1);
    ASSERT_EQ(got.images.size(), 2u * 3 * 2 * 2);
    ASSERT_EQ(got.geometry.size(), 2u);
    EXPECT_TRUE(got.geometry[0].swaps.empty());
    EXPECT_EQ(got.geometry[1].swaps.size(), 1u);
    for (std::size_t view = 0; view < 2; ++view) {
      for (std::size_t at = 0; at < 12; ++at) {
        const data::Point from = got.geometry[view].inverse_map(
            {static_cast<double>(at % 2) + 0.5, static_cast<double>(at / 2 % 2) + 0.5});
        const auto source =
            at / 4 * 16 + static_cast<std::size_t>(from.y) * 4 + static_cast<std::size_t>(from.x);
        EXPECT_EQ(got.images[12 * view + at], whole[source]);
      }
    }
    differ += !std::equal(got.images.begin(), got.images.begin() + 12, got.images.begin() + 12);
    const ImageValues many = pairs.make(sample, 3);
    EXPECT_TRUE(
        std::equal(got.images.begin() + 12, got.images.end(), many.images.begin() + 3 * 12));
  }
  EXPECT_GT(differ, 20);
}

TEST(ImageBatches, cut_the_middle_where_nothing_is_random) {
  const data::ImagePart part = numbered(5);
  const ImageBatches plain(part, kShape, unit_stats(), 5);
  const ImageBatches middle(part, kShape, unit_stats(), 5, {.side = 2});
  const std::vector<float> whole = plain.make(3, 1).images, cut = middle.make(3, 1).images;
  for (std::size_t at = 0; at < 12; ++at) {
    EXPECT_EQ(cut[at], whole[at / 4 * 16 + (1 + at / 2 % 2) * 4 + 1 + at % 2]);
  }
}

TEST(ImageBatches, augment_gray_images_as_gray_ones) {
  const data::ImagePart part({1, 8, 8}, std::vector<std::uint8_t>{0},
                             std::vector<std::uint8_t>(64, 100));
  const ImageBatches batches(part, {1, 8, 8}, {{0}, {1 / 255.0}}, 5, {.ops = 3});
  const ImageValues values = batches.make(0, 20);
  EXPECT_EQ(values.images.size(), 20u * 64);
  const std::set<float> levels(values.images.begin(), values.images.end());
  EXPECT_GT(levels.size(), 5u) << "brightness varies";
  EXPECT_THROW(ImageBatches(numbered(1), kShape, unit_stats(), 5, {.flip = 2}), Error);
}

// ---- Prefetcher

ImageValues marked(Index first, Index count) {
  return {first, count, std::vector<float>(1, static_cast<float>(first * 1000 + count)), {}, {}};
}

TEST(Prefetcher, gives_what_was_asked_for_with_any_number_of_workers) {
  for (const Index workers : {0, 1, 4}) {
    Prefetcher prefetcher(marked, workers, 3);
    for (const auto& [first, count] : std::vector<std::pair<Index, Index>>{
             {0, 8}, {8, 8}, {16, 8}, {100, 4}, {104, 4}, {108, 3}, {0, 8}, {0, 8}, {8, 8}}) {
      const ImageValues got = prefetcher.take(first, count);
      EXPECT_EQ(got.first, first);
      EXPECT_EQ(got.images[0], static_cast<float>(first * 1000 + count));
    }
  }
}

TEST(Prefetcher, works_ahead_as_far_as_told_and_no_further) {
  std::atomic<Index> made{0};
  Prefetcher prefetcher(
      [&](Index first, Index count) {
        ++made;
        return marked(first, count);
      },
      2, 3);
  prefetcher.take(0, 8);
  EXPECT_TRUE(test::wait_until([&] { return made == 4; })) << made;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(made, 4) << "the one taken and three ahead";
  prefetcher.take(8, 8);
  EXPECT_TRUE(test::wait_until([&] { return made == 5; })) << made;
}

TEST(Prefetcher, prepares_nothing_behind_the_end) {
  std::atomic<Index> last{0};
  Prefetcher prefetcher(
      [&](Index first, Index count) {
        last = std::max<Index>(last, first + count);
        return marked(first, count);
      },
      1, 8, /*end=*/20);
  for (const auto& [first, count] : std::vector<std::pair<Index, Index>>{{0, 8}, {8, 8}, {16, 4}}) {
    EXPECT_EQ(prefetcher.take(first, count).count, count);
  }
  EXPECT_EQ(last, 20);
}

TEST(Prefetcher, rethrows_the_failure_of_the_batch_that_failed_only) {
  Prefetcher prefetcher(
      [](Index first, Index count) {
        if (first == 8) throw Error(ErrorCategory::CorruptFile, "[a.jpg] expected x, got y");
        return marked(first, count);
      },
      2, 4);
  EXPECT_EQ(prefetcher.take(0, 8).first, 0);
  EXPECT_THROW(prefetcher.take(8, 8), Error);
  EXPECT_EQ(prefetcher.take(16, 8).first, 16);
}

}  // namespace
}  // namespace hone::task
