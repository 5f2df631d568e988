// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/data/permute.h"
#include "hone/train/task/lm/token_data.h"
#include "hone/train/trainer/metrics_log.h"
#include "hone/train/trainer/metrics_sinks.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Permute, takes_every_index_once_and_depends_on_the_key) {
  for (const Index size : {1, 2, 3, 5, 64, 1000}) {
    std::set<Index> seen;
    Index moved = 0;
    for (Index i = 0; i < size; ++i) {
      const Index to = data::permute(i, size, 42);
      EXPECT_TRUE(to >= 0 && to < size);
      seen.insert(to);
      moved += to != data::permute(i, size, 43);
    }
    EXPECT_EQ(static_cast<Index>(seen.size()), size);
    if (size == 1000) {
      EXPECT_GT(moved, 900);
    }
  }
}

std::vector<text::TokenId> counting(Index n) {
  std::vector<text::TokenId> out;
  for (Index i = 0; i < n; ++i) out.push_back(static_cast<text::TokenId>(i));
  return out;
}

TEST(TokenWindows, take_every_token_of_an_epoch_as_target_at_most_once) {
  const task::TokenWindows windows(counting(1000), 8, 5);
  for (const Index epoch : {0, 1, 7}) {
    std::set<std::int64_t> targets;
    for (Index i = 0; i < windows.windows_per_epoch(); ++i) {
      const task::TokenBatch batch = windows.batch(epoch * windows.windows_per_epoch() + i, 1);
      for (Index t = 0; t < 8; ++t) {
        const auto id = batch.ids.data_ptr<std::int64_t>()[t];
        const auto target = batch.targets.data_ptr<std::int64_t>()[t];
        EXPECT_EQ(target, id + 1);
        EXPECT_TRUE(targets.insert(target).second);
      }
    }
    EXPECT_EQ(static_cast<Index>(targets.size()), windows.windows_per_epoch() * 8);
    EXPECT_GE(targets.size(), 980u);
  }
}

// Every rank takes its share of the sample numbers, and a sample is a function of its number:
// whoever reads it, in whatever order.
TEST(TokenWindows, every_rank_and_any_number_of_readers_take_each_window_once_per_epoch) {
  using Range = std::pair<Index, Index>;
  for (const auto& stream : {text::TokenStream{counting(1003), {1003}},
                             text::TokenStream{counting(400), {4, 5, 100, 250, 400}}}) {
    const task::TokenWindows windows(stream, 8, 5);
    const Index per_epoch = windows.windows_per_epoch();
    for (const Index ranks : {1, 2, 3}) {
      for (const Index epoch : {0, 1, 5}) {
        std::map<Range, Index> taken;
        for (Index rank = 0; rank < ranks; ++rank) {
          for (Index i = rank; i < per_epoch; i += ranks) {
            const text::TokenRange range = windows.range_of(epoch * per_epoch + i);
            ++taken[{range.begin, range.end}];
          }
        }
        EXPECT_EQ(static_cast<Index>(taken.size()), per_epoch) << ranks;
        for (const auto& [range, count] : taken) EXPECT_EQ(count, 1) << range.first;
      }
    }
    const task::TokenBatch alone = windows.batch(0, per_epoch);
    for (const int readers : {1, 2, 3, 8}) {
      std::vector<torch::Tensor> rows(static_cast<std::size_t>(per_epoch));
      ThreadPool pool(readers);
      pool.parallel_for(per_epoch, 1, [&](Index begin, Index end, int) {
        for (Index i = begin; i < end; ++i) {
          rows[static_cast<std::size_t>(i)] = windows.batch(i, 1).ids[0];
        }
      });
      for (Index i = 0; i < per_epoch; ++i) {
        const torch::Tensor& row = rows[static_cast<std::size_t>(i)];
        EXPECT_TRUE(row.equal(alone.ids[i].narrow(0, 0, row.size(0)))) << readers;
      }
    }
  }
}

TEST(TokenWindows, give_the_same_sample_whatever_came_before) {
  const task::TokenWindows a(counting(500), 16, 3), b(counting(500), 16, 3),
      c(counting(500), 16, 4);
  const task::TokenBatch all = a.batch(0, 100);
  Index differs = 0;
  for (const Index sample : {99, 0, 31, 64}) {
    EXPECT_TRUE(b.batch(sample, 1).ids[0].equal(all.ids[sample]));
    differs += !c.batch(sample, 1).ids[0].equal(all.ids[sample]);
  }
  EXPECT_GT(differs, 0);
}

TEST(TokenWindows, of_documents_hold_one_each_and_pad_to_the_longest) {
  const task::TokenWindows windows({counting(20), {4, 5, 20}}, 8, 5);
  EXPECT_EQ(windows.windows_per_epoch(), 4);
  using Range = std::pair<Index, Index>;
  for (const Index epoch : {0, 3}) {
    std::set<Range> taken;
    for (Index i = 0; i < 4; ++i) {
      const text::TokenRange range = windows.range_of(epoch * 4 + i);
      taken.insert({range.begin, range.end});
      const task::TokenBatch one = windows.batch(epoch * 4 + i, 1);
      EXPECT_EQ(one.predicted, range.length() - 1);
      EXPECT_TRUE(one.targets.equal(one.ids + 1));
    }
    // A document's first window begins at the token before it.
    EXPECT_EQ(taken, (std::set<Range>{{0, 4}, {3, 5}, {4, 12}, {12, 20}}));
  }
  const task::TokenBatch all = windows.batch(0, 4);
  EXPECT_EQ(all.ids.sizes(), (std::vector<std::int64_t>{4, 7}));
  EXPECT_EQ(all.predicted, 3 + 1 + 7 + 7);
  EXPECT_EQ((all.targets >= 0).sum().item<std::int64_t>(), all.predicted);
}

TEST(TokenWindows, accept_the_shortest_text_and_refuse_a_shorter_one) {
  EXPECT_TRUE(task::TokenWindows(counting(9), 8, 1).batch(3, 2).ids[1].equal(at::arange(8)));
  EXPECT_THROW(task::TokenWindows(counting(8), 8, 1), Error);
  EXPECT_THROW(task::TokenWindows(text::TokenStream{counting(1), {1}}, 8, 1), Error);
}

MetricsRow row_with_parts(Index step) {
  const double x = 1.0 / static_cast<double>(step + 2);
  return {step, x, x / 3, x / 7, 1e6 * x, {}, {}};
}

// A log of steps first … last.
void write_log(const TemporaryFolder& folder, Index first, Index last) {
  MetricsSinks sinks(folder.path(), {}, {});
  for (Index step = first; step <= last; ++step) sinks.add(row_with_parts(step));
}

// Steps of the rows that a run resumed after `steps` keeps, and its warning.
std::pair<std::vector<Index>, std::string> kept_steps(const std::filesystem::path& path,
                                                      Index steps) {
  std::vector<Index> kept;
  testing::internal::CaptureStderr();
  for (const MetricsRow& row : kept_metrics(path, steps)) kept.push_back(row.step);
  return {kept, testing::internal::GetCapturedStderr()};
}

TEST(MetricsLog, keeps_full_precision_and_reads_back_what_it_wrote) {
  const TemporaryFolder folder;
  {
    MetricsSinks sinks(folder.path(), {}, {});
    sinks.add(row_with_parts(1));
    MetricsRow validated = row_with_parts(2);
    sinks.add(validated);
    validated.val_loss = 0.1, validated.val_bits_per_byte = 0.2, validated.val_accuracy = 0.3;
    sinks.replace_last(validated);
  }
  const std::vector<MetricsRow> rows = read_metrics(folder.path() / "metrics.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].loss, 1.0 / 3);
  EXPECT_FALSE(rows[0].val_loss);
  EXPECT_EQ(rows[1].val_loss, 0.1);
  EXPECT_EQ(rows[1].val_bits_per_byte, 0.2);
  EXPECT_EQ(rows[1].val_accuracy, 0.3);
  EXPECT_FALSE(rows[0].val_accuracy);
}

// As logs were written before they had columns for skipped steps, and before those for accuracy.
TEST(MetricsLog, reads_logs_that_were_written_before_a_column_existed) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.csv";
  const std::string oldest = "step,loss,lr,grad_norm,tokens_per_s,val_loss,val_bits_per_byte";
  for (const auto& [header, row] : std::map<std::string, std::string>{
           {oldest, "1,0.5,0.25,2,1000,3,"},
           {oldest + ",loss_scale,val_accuracy", "1,0.5,0.25,2,1000,3,,65536,"}}) {
    write_text_file(path, header + '\n' + row + '\n');
    const std::vector<MetricsRow> rows = read_metrics(path);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].loss, 0.5);
    EXPECT_EQ(rows[0].tokens_per_s, 1000);
    EXPECT_EQ(rows[0].val_loss, 3);
    EXPECT_EQ(rows[0].loss_scale.has_value(), header != oldest);
    EXPECT_FALSE(rows[0].val_bits_per_byte || rows[0].skipped || rows[0].growth_tracker);
    const auto [steps, warning] = kept_steps(path, 1);
    EXPECT_THAT(steps, ElementsAre(1));
    EXPECT_EQ(warning, "");
    write_text_file(path, header + ",0\n" + row + ",0\n");
    EXPECT_THROW(read_metrics(path), Error) << "a column of no name";
  }
  write_text_file(path, "step,loss,lr\n1,0.5,0.25\n");
  EXPECT_THROW(read_metrics(path), Error) << "columns that every log has";
}

TEST(MetricsLog, goes_on_with_all_columns_after_an_older_log) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.csv";
  write_text_file(path,
                  "step,loss,lr,grad_norm,tokens_per_s,val_loss,val_bits_per_byte,loss_scale,"
                  "val_accuracy\n1,0.5,0.25,2,1000,,,,\n");
  MetricsRow next = row_with_parts(2);
  next.skipped = 1;
  { MetricsSinks(folder.path(), {}, kept_metrics(path, 1)).add(next); }
  const std::vector<MetricsRow> rows = read_metrics(path);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].loss, 0.5);
  EXPECT_FALSE(rows[0].skipped);
  EXPECT_EQ(rows[1].skipped, 1);
}

TEST(MetricsLog, drops_rows_after_the_checkpoint_and_a_torn_line) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.csv";
  write_log(folder, 1, 5);
  std::ofstream(path, std::ios::app) << "6,0.12";
  const auto [steps, warning] = kept_steps(path, 3);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
  EXPECT_EQ(warning, "");
}

TEST(MetricsLog, that_is_gone_short_or_damaged_keeps_what_it_has_with_one_warning) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.csv";
  const auto expect_kept = [&](Index steps, const std::vector<Index>& want, const char* said) {
    const auto [kept, warning] = kept_steps(path, steps);
    EXPECT_EQ(kept, want);
    EXPECT_THAT(warning, HasSubstr(said));
    EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
  };
  expect_kept(7, {}, "no rows of steps 1 to 7");
  write_log(folder, 1, 0);
  expect_kept(7, {}, "no rows of steps 1 to 7");
  write_log(folder, 1, 3);
  expect_kept(7, {1, 2, 3}, "no rows of steps 4 to 7");
  std::ofstream(path, std::ios::app) << std::string(100, '\0') << "\n5,a,b,c,d,,\n";
  expect_kept(7, {1, 2, 3}, "no rows of steps 4 to 7");
  write_text_file(path, "x,y\n1,2\n");
  expect_kept(1, {}, "no rows of steps 1 to 1");
}

TEST(MetricsLog, with_a_gap_is_kept_whole) {
  const TemporaryFolder folder;
  const std::vector<MetricsRow> kept = {row_with_parts(1), row_with_parts(2)};
  { MetricsSinks(folder.path(), {}, kept).add(row_with_parts(7)); }
  const auto [steps, warning] = kept_steps(folder.path() / "metrics.csv", 7);
  EXPECT_THAT(steps, ElementsAre(1, 2, 7));
  EXPECT_EQ(warning, "");
}

TEST(MetricsLog, that_is_no_log_is_not_read_as_one) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.csv";
  write_log(folder, 1, 1);
  write_text_file(path, read_text_file(path) + "2,a,b,c,d,,\n");
  EXPECT_THROW(read_metrics(path), Error);
  write_text_file(path, "x,y\n");
  EXPECT_THROW(read_metrics(path), Error);
}

}  // namespace
}  // namespace hone::trainer
