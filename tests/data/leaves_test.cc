// SPDX-License-Identifier: Apache-2.0
#include "hone/data/leaves/leaves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/data/leaves/draw_leaf.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<std::uint8_t> read(const ImagePart& part, Index size, Index index) {
  std::vector<std::uint8_t> planes(static_cast<std::size_t>(3 * size * size));
  part.read(index, planes);
  return planes;
}

// ---- classes and cues

TEST(LeafClasses, differ_in_a_cue_and_share_each_level_evenly) {
  for (Index classes = 2; classes <= 130; ++classes) {
    const Index levels = leaf_levels(classes);
    EXPECT_GE(levels * levels * levels, classes);
    std::set<std::array<Index, 3>> triples;
    std::array<std::map<Index, Index>, 3> counts;
    for (Index label = 0; label < classes; ++label) {
      const auto triple = levels_of_class(label, classes);
      triples.insert(triple);
      for (std::size_t cue = 0; cue < 3; ++cue) {
        EXPECT_GE(triple[cue], 0);
        EXPECT_LT(triple[cue], levels);
        ++counts[cue][triple[cue]];
      }
    }
    EXPECT_EQ(static_cast<Index>(triples.size()), classes);
    for (const auto& count : counts) {
      EXPECT_EQ(static_cast<Index>(count.size()), std::min(levels, classes));
      for (const auto& [level, images] : count) {
        EXPECT_LE(std::abs(static_cast<double>(images) -
                           static_cast<double>(classes) / static_cast<double>(levels)),
                  1)
            << classes << ' ' << level;
      }
      if (classes > 2) {
        EXPECT_LT(static_cast<Index>(count.size()), classes) << "one cue tells all";
      }
    }
  }
}

TEST(LeafClasses, neighboring_levels_are_one_apart) {
  for (const Index classes : {8, 27, 64}) {
    const Index levels = leaf_levels(classes);
    double nearest_vein = 9, nearest_blotch = 9, nearest_notch = 9;
    for (Index a = 0; a < classes; ++a) {
      for (Index b = 0; b < a; ++b) {
        const auto from = levels_of_class(a, classes), to = levels_of_class(b, classes);
        const LeafCues x = mean_cues(a, classes), y = mean_cues(b, classes);
        const double vein = std::abs(x.vein - y.vein), notch = std::abs(x.notch - y.notch);
        const double blotch = std::hypot(x.blotch_x - y.blotch_x, x.blotch_y - y.blotch_y);
        if (from[0] != to[0]) nearest_vein = std::min(nearest_vein, vein);
        if (from[1] != to[1]) nearest_blotch = std::min(nearest_blotch, blotch);
        if (from[2] != to[2]) nearest_notch = std::min(nearest_notch, notch);
        EXPECT_EQ(vein > 0.5, from[0] != to[0]);
        EXPECT_EQ(blotch > 0.5, from[1] != to[1]);
        EXPECT_EQ(notch > 0.5, from[2] != to[2]);
      }
    }
    EXPECT_DOUBLE_EQ(nearest_vein, 1) << levels;
    EXPECT_NEAR(nearest_blotch, 1, 1e-12);
    EXPECT_DOUBLE_EQ(nearest_notch, 1);
  }
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(LeavesCeiling, is_the_closed_form_where_there_is_one) {
  for (const double difficulty : {0.25, 0.5, 1.0}) {
    const double deviation = cue_deviation(difficulty);
    // Two levels of each cue, all eight triples: every cue is decided alone, half a unit away.
    const LeavesCeiling eight = leaves_ceiling({.classes = 8, .difficulty = difficulty});
    EXPECT_NEAR(eight.accuracy, std::pow(normal_cdf(0.5 / deviation), 3), 4 * eight.standard_error);
    // Two classes that differ by one unit in all three cues.
    const LeavesCeiling two = leaves_ceiling({.classes = 2, .difficulty = difficulty});
    EXPECT_NEAR(two.accuracy, normal_cdf(std::sqrt(3.0) / 2 / deviation),
                4 * two.standard_error + 1e-5);
    EXPECT_LT(eight.standard_error, 0.0015);
  }
}

TEST(LeavesCeiling, falls_with_the_difficulty) {
  double before = 1;
  for (const double difficulty : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}) {
    const LeavesCeiling ceiling = leaves_ceiling({.difficulty = difficulty});
    if (difficulty <= 0.2) {  // borders are five deviations away, or infinitely many
      EXPECT_GT(ceiling.accuracy, 0.9999);
      EXPECT_LE(ceiling.accuracy, before);
    } else {
      EXPECT_LT(ceiling.accuracy, before - 0.01) << difficulty;
    }
    before = ceiling.accuracy;
  }
  EXPECT_GT(before, 5.0 / 16) << "the hardest set is still far from chance";
}

std::array<double, 4> values_of(const LeafCues& cues) {
  return {cues.vein, cues.blotch_x, cues.blotch_y, cues.notch};
}

// Class means of training images, nearest mean for the others.
TEST(LeafCues, are_classified_up_to_the_ceiling) {
  for (const double difficulty : {0.5, 0.9}) {
    const LeavesOptions options{.difficulty = difficulty};
    constexpr Index kImages = 500;
    std::vector<std::array<double, 4>> means(16);
    for (Index label = 0; label < 16; ++label) {
      for (Index i = 0; i < kImages; ++i) {
        const auto cues = values_of(cues_of_image(options, LeafSplit::Train, label, i));
        for (std::size_t k = 0; k < 4; ++k) {
          means[static_cast<std::size_t>(label)][k] += cues[k] / kImages;
        }
      }
    }
    Index right = 0;
    for (Index label = 0; label < 16; ++label) {
      for (Index i = 0; i < kImages; ++i) {
        const auto cues = values_of(cues_of_image(options, LeafSplit::Test, label, i));
        const auto distance = [&](const std::array<double, 4>& mean) {
          double sum = 0;
          for (std::size_t k = 0; k < 4; ++k) sum += (cues[k] - mean[k]) * (cues[k] - mean[k]);
          return sum;
        };
        right += std::ranges::min_element(means, {}, distance) - means.begin() == label;
      }
    }
    const double accuracy = static_cast<double>(right) / (16 * kImages);
    EXPECT_NEAR(accuracy, leaves_ceiling(options).accuracy, 0.02);
  }
}

// ---- images

TEST(Leaves, are_functions_of_options_split_class_and_index_in_any_order_on_any_thread) {
  const LeavesOptions options{.classes = 5, .train = 4, .val = 3};
  const ImagePart part = leaves_part(options, LeafSplit::Train);
  ASSERT_EQ(part.size(), 20);
  std::vector<std::vector<std::uint8_t>> forth(20), back(20);
  for (Index i = 0; i < 20; ++i) forth[static_cast<std::size_t>(i)] = read(part, 64, i);
  ThreadPool pool(4);
  pool.parallel_for(20, 1, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      back[static_cast<std::size_t>(19 - i)] = read(part, 64, 19 - i);
    }
  });
  EXPECT_EQ(forth, back);
  EXPECT_EQ((std::set<std::vector<std::uint8_t>>(forth.begin(), forth.end()).size()), 20u);
  EXPECT_EQ(part.label(7), 1);
  // More images, or more in another split, leave those that there are.
  LeavesOptions more = options;
  more.train = 6;
  more.val = 9;
  EXPECT_EQ(read(leaves_part(more, LeafSplit::Train), 64, 6), forth[4]);
  for (const auto& change : std::vector<std::function<void(LeavesOptions&)>>{
           [](LeavesOptions& o) { o.seed = 2; }, [](LeavesOptions& o) { o.difficulty = 0.6; }}) {
    LeavesOptions other = options;
    change(other);
    EXPECT_NE(read(leaves_part(other, LeafSplit::Train), 64, 0), forth[0]);
  }
  EXPECT_NE(read(leaves_part(options, LeafSplit::Val), 64, 0), forth[0]);
}

// The same scene with one cue moved by a level.
TEST(DrawLeaf, shows_every_cue_in_some_pixels_and_keeps_the_others) {
  for (const LeafCues& moved : {LeafCues{.vein = 1}, LeafCues{.blotch_x = 1},
                                LeafCues{.blotch_y = 1}, LeafCues{.notch = 1}}) {
    double changed = 0;
    for (std::uint64_t key = 0; key < 8; ++key) {
      const Image before = draw_leaf({}, 3, 64, key), after = draw_leaf(moved, 3, 64, key);
      for (std::size_t at = 0; at < before.pixels.size(); ++at) {
        changed += std::abs(before.pixels[at] - after.pixels[at]) > 12;
      }
    }
    const double share = changed / (8 * 3 * 64 * 64);
    EXPECT_GT(share, 0.004) << moved.vein << moved.blotch_x << moved.blotch_y << moved.notch;
    EXPECT_LT(share, 0.25);
  }
}

TEST(DrawLeaf, takes_any_size_and_far_cues) {
  for (const Index side : {32, 33, 224}) {
    for (const double far : {-4.0, 4.0}) {
      const Image image = draw_leaf({far, far, far, far}, 2, side, 5);
      EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(3 * side * side));
      EXPECT_GT(std::set<std::uint8_t>(image.pixels.begin(), image.pixels.end()).size(), 40u);
    }
  }
}

// ---- what must not give the class away

// Means, deviations and histograms of 16 levels of the channels.
std::vector<double> color_features(const std::vector<std::uint8_t>& planes) {
  std::vector<double> out;
  const std::size_t plane = planes.size() / 3;
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    std::vector<double> histogram(16);
    for (std::size_t i = c * plane; i < (c + 1) * plane; ++i) {
      sum += planes[i];
      squares += planes[i] * planes[i];
      histogram[planes[i] / 16] += 1;
    }
    const double count = static_cast<double>(plane), mean = sum / count;
    out.push_back(mean);
    out.push_back(std::sqrt(squares / count - mean * mean));
    out.insert(out.end(), histogram.begin(), histogram.end());
  }
  return out;
}

struct Examples {
  std::vector<std::vector<double>> features;
  std::vector<std::size_t> labels;
};

// Both sets to mean 0 and deviation 1 of the first, with a constant as the last feature.
void standardize(Examples& train, Examples& test) {
  const double count = static_cast<double>(train.labels.size());
  for (std::size_t k = 0; k < train.features[0].size(); ++k) {
    double mean = 0, square = 0;
    for (const auto& row : train.features) mean += row[k] / count;
    for (const auto& row : train.features) square += (row[k] - mean) * (row[k] - mean) / count;
    for (Examples* const set : {&train, &test}) {
      for (auto& row : set->features) row[k] = (row[k] - mean) / std::sqrt(square + 1e-9);
    }
  }
  for (Examples* const set : {&train, &test}) {
    for (auto& row : set->features) row.push_back(1);
  }
}

// The number of test examples that multinomial logistic regression gets right after gradient
// descent with a small L2 penalty.
Index right_by_logistic_regression(Examples train, Examples test, std::size_t classes) {
  standardize(train, test);
  const std::size_t width = train.features[0].size();
  std::vector<std::vector<double>> weights(classes, std::vector<double>(width));
  const auto scores = [&](const std::vector<double>& row) {
    std::vector<double> out;
    for (const auto& w : weights) {
      out.push_back(std::inner_product(row.begin(), row.end(), w.begin(), 0.0));
    }
    return out;
  };
  for (int step = 0; step < 100; ++step) {
    std::vector<std::vector<double>> gradient(classes, std::vector<double>(width));
    for (std::size_t i = 0; i < train.labels.size(); ++i) {
      std::vector<double> p = scores(train.features[i]);
      const double most = *std::ranges::max_element(p);
      for (double& value : p) value = std::exp(value - most);
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      for (std::size_t c = 0; c < classes; ++c) {
        const double error = p[c] / sum - (c == train.labels[i] ? 1 : 0);
        for (std::size_t k = 0; k < width; ++k) gradient[c][k] += error * train.features[i][k];
      }
    }
    for (std::size_t c = 0; c < classes; ++c) {
      for (std::size_t k = 0; k < width; ++k) {
        const double mean = gradient[c][k] / static_cast<double>(train.labels.size());
        weights[c][k] -= 0.5 * (mean + 1e-3 * weights[c][k]);
      }
    }
  }
  Index right = 0;
  for (std::size_t i = 0; i < test.labels.size(); ++i) {
    const std::vector<double> p = scores(test.features[i]);
    right += static_cast<std::size_t>(std::ranges::max_element(p) - p.begin()) == test.labels[i];
  }
  return right;
}

class LeafColors : public testing::Test {
 protected:
  static constexpr Index kClasses = 27, kTrain = 40, kTest = 40;

  // All levels of each cue occur equally often; without jitter any trace is as clear as it can be.
  static Examples examples(LeafSplit split) {
    const LeavesOptions options{
        .classes = kClasses, .train = kTrain, .test = kTest, .difficulty = 0};
    const ImagePart part = leaves_part(options, split);
    Examples out;
    for (Index i = 0; i < part.size(); ++i) {
      out.features.push_back(color_features(read(part, options.size, i)));
      out.labels.push_back(static_cast<std::size_t>(part.label(i)));
    }
    return out;
  }
  static Examples with_levels(Examples examples, std::size_t cue) {
    for (std::size_t& label : examples.labels) {
      label = static_cast<std::size_t>(levels_of_class(static_cast<Index>(label), kClasses)[cue]);
    }
    return examples;
  }
  // The 99 % interval of chance, by the normal approximation.
  static void expect_chance(Index right, Index count, double chance, const char* what) {
    const double mean = chance * static_cast<double>(count);
    const double reach = 2.576 * std::sqrt(mean * (1 - chance)) + 0.5;
    EXPECT_NEAR(static_cast<double>(right), mean, reach) << what;
  }
};

TEST_F(LeafColors, tell_neither_the_class_nor_a_level) {
  const Examples train = examples(LeafSplit::Train), test = examples(LeafSplit::Test);
  constexpr Index kCount = kClasses * kTest;
  expect_chance(right_by_logistic_regression(train, test, kClasses), kCount, 1.0 / kClasses,
                "classes");
  const char* const names[] = {"veins", "blotches", "notches"};
  for (std::size_t cue = 0; cue < 3; ++cue) {
    expect_chance(right_by_logistic_regression(with_levels(train, cue), with_levels(test, cue), 3),
                  kCount, 1.0 / 3, names[cue]);
  }
  // The same regression does see a trace: one mean that is moved by half its deviation.
  Examples seen = with_levels(train, 0), seen_test = with_levels(test, 0);
  for (Examples* const set : {&seen, &seen_test}) {
    for (std::size_t i = 0; i < set->labels.size(); ++i) {
      set->features[i][0] += 5 * static_cast<double>(set->labels[i]);
    }
  }
  EXPECT_GT(right_by_logistic_regression(seen, seen_test, 3), kCount * 2 / 5);
}

// ---- the corpus and its export

TEST(LeavesCorpus, holds_train_and_val_in_memory_or_not) {
  set_log_level(LogLevel::Error);
  const LeavesOptions options{.classes = 3, .size = 32, .train = 3, .val = 2};
  ThreadPool pool(4);
  const ImageCorpus kept = leaves_corpus(options, {}, pool);
  EXPECT_EQ(kept.name, "leaves");
  EXPECT_EQ(kept.shape, (ImageShape{3, 32, 32}));
  EXPECT_THAT(kept.classes, testing::ElementsAre("leaf_00", "leaf_01", "leaf_02"));
  EXPECT_EQ(kept.train.size(), 9);
  EXPECT_EQ(kept.held_out.size(), 6);
  EXPECT_TRUE(kept.train.in_memory());
  const ImageCorpus drawn = leaves_corpus(options, {.memory_bytes = 0}, serial_executor());
  EXPECT_FALSE(drawn.train.in_memory());
  EXPECT_EQ(drawn.hash, kept.hash);
  EXPECT_EQ(read(kept.held_out, 32, 5), read(leaves_part(options, LeafSplit::Val), 32, 5));
  const hone::test::StopFlag stop{true};
  EXPECT_THROW(leaves_corpus(options, {.stop = stop}, pool), Error);
  EXPECT_EQ(leaf_class_names(101)[7], "leaf_007");
}

TEST(WriteLeaves, writes_what_is_read_again_pixel_for_pixel) {
  set_log_level(LogLevel::Error);
  const test::TemporaryFolder folder;
  const LeavesOptions options{.classes = 3, .size = 32, .train = 3, .val = 2, .test = 0};
  ThreadPool pool(4);
  write_leaves(options, folder.path() / "a", pool);
  const ImageCorpus again = load_images(folder.path() / "a", {.side = 32}, pool);
  const ImageCorpus drawn = leaves_corpus(options, {}, pool);
  EXPECT_EQ(again.classes, drawn.classes);
  EXPECT_EQ(again.hash, drawn.hash);
  // Where there are test images, they are what is held out.
  LeavesOptions tested = options;
  tested.test = 4;
  fs::create_directory(folder.path() / "b");
  write_leaves(tested, folder.path() / "b", serial_executor());
  const ImageCorpus other = load_images(folder.path() / "b", {.side = 32}, pool);
  ASSERT_EQ(other.held_out.size(), 12);
  EXPECT_EQ(read(other.held_out, 32, 9), read(leaves_part(tested, LeafSplit::Test), 32, 9));
}

TEST(WriteLeaves, spares_a_folder_that_has_anything_in_it) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "mine.txt", "text");
  const LeavesOptions options{.classes = 2, .size = 32, .train = 1, .val = 1, .test = 0};
  for (const fs::path& path : {folder.path(), folder.path() / "mine.txt"}) {
    try {
      write_leaves(options, path, serial_executor());
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("a new or an empty folder"));
    }
  }
  EXPECT_EQ(read_text_file(folder.path() / "mine.txt"), "text");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Leaves, refuse_options_by_name) {
  const auto refusal = [](const LeavesOptions& options) {
    try {
      leaves_part(options, LeafSplit::Train);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_THAT(refusal({.classes = 1}), HasSubstr("[data.leaves.classes] expected 2 to 1000"));
  EXPECT_THAT(refusal({.classes = 1001}), HasSubstr("data.leaves.classes"));
  EXPECT_THAT(refusal({.size = 31}), HasSubstr("data.leaves.size"));
  EXPECT_THAT(refusal({.train = 0}), HasSubstr("data.leaves.train"));
  EXPECT_THAT(refusal({.val = 0}), HasSubstr("data.leaves.val"));
  EXPECT_THAT(refusal({.test = -1}), HasSubstr("data.leaves.test"));
  EXPECT_THAT(refusal({.difficulty = 1.5}), HasSubstr("data.leaves.difficulty"));
  EXPECT_THAT(refusal({.difficulty = std::nan("")}), HasSubstr("data.leaves.difficulty"));
  EXPECT_THAT(refusal({.seed = -1}), HasSubstr("data.leaves.seed"));
}

}  // namespace
}  // namespace hone::data
