// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/metrics_sinks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/train/trainer/event_file.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

using test::TemporaryFolder;

constexpr MetricsFormat kBoth[] = {MetricsFormat::JsonLines, MetricsFormat::TensorBoard};

MetricsRow row_of(Index step) {
  MetricsRow row{
      step, 1.0 / static_cast<double>(step), 1e-3, 0.1 * static_cast<double>(step), 12345, {}, {}};
  if (step % 2 == 0) row.val_loss = 2.5, row.val_bits_per_byte = 1.0 / 3;
  return row;
}

std::vector<MetricsRow> rows_to(Index last) {
  std::vector<MetricsRow> rows;
  for (Index step = 1; step <= last; ++step) rows.push_back(row_of(step));
  return rows;
}

std::string json_lines(const TemporaryFolder& folder) {
  return read_text_file(folder.path() / "metrics.jsonl");
}
std::filesystem::path event_path(const TemporaryFolder& folder) {
  return folder.path() / "tensorboard" / "events.out.tfevents.0.hone";
}

TEST(MetricsSinks, json_lines_hold_every_digit_and_leave_out_what_was_not_measured) {
  const TemporaryFolder folder;
  MetricsSinks sinks(folder.path(), kBoth, {});
  for (const MetricsRow& row : rows_to(4)) sinks.add(row);
  std::istringstream lines(json_lines(folder));
  Index step = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json read = Json::parse(line);
    const MetricsRow want = row_of(++step);
    EXPECT_EQ(read.at("step").get<Index>(), step);
    EXPECT_EQ(read.at("loss").get<double>(), want.loss);
    EXPECT_EQ(read.at("grad_norm").get<double>(), want.grad_norm);
    EXPECT_EQ(read.contains("val_bits_per_byte"), step % 2 == 0);
    if (step % 2 == 0) {
      EXPECT_EQ(read.at("val_bits_per_byte").get<double>(), 1.0 / 3);
    }
  }
  EXPECT_EQ(step, 4);
}

TEST(MetricsSinks, go_on_after_the_kept_rows_without_duplicates_or_torn_ends) {
  const TemporaryFolder whole, parts;
  {
    MetricsSinks sinks(whole.path(), kBoth, {});
    for (const MetricsRow& row : rows_to(6)) sinks.add(row);
  }
  {
    MetricsSinks sinks(parts.path(), kBoth, {});
    for (const MetricsRow& row : rows_to(5)) sinks.add(row);
  }
  std::string events = read_text_file(event_path(parts));
  const std::string first_three(keep_events(events, rows_to(3)).bytes);
  write_text_file(event_path(parts), events.substr(0, events.size() - 5));
  {
    MetricsSinks sinks(parts.path(), kBoth, rows_to(3));
    for (Index step = 4; step <= 6; ++step) sinks.add(row_of(step));
  }
  EXPECT_EQ(json_lines(parts), json_lines(whole));
  events = read_text_file(event_path(parts));
  EXPECT_TRUE(events.starts_with(first_three)) << "with the times that they had";
  EXPECT_EQ(keep_events(events, rows_to(100)).rows, 6u);
  EXPECT_EQ(keep_events(events, rows_to(100)).bytes.size(), events.size());
}

TEST(MetricsSinks, write_kept_rows_again_where_the_event_file_lacks_them) {
  const TemporaryFolder folder;
  { MetricsSinks(folder.path(), kBoth, rows_to(3)).add(row_of(4)); }
  EXPECT_EQ(keep_events(read_text_file(event_path(folder)), rows_to(9)).rows, 4u);
  std::string damaged = read_text_file(event_path(folder));
  damaged[keep_events(damaged, rows_to(1)).bytes.size() + 14] ^= 1;
  EXPECT_EQ(keep_events(damaged, rows_to(9)).rows, 1u);
  write_text_file(event_path(folder), damaged);
  { MetricsSinks(folder.path(), kBoth, rows_to(4)).add(row_of(5)); }
  EXPECT_EQ(keep_events(read_text_file(event_path(folder)), rows_to(9)).rows, 5u);
}

TEST(MetricsSinks, go_on_behind_a_gap) {
  const TemporaryFolder folder;
  const std::vector<MetricsRow> kept = {row_of(1), row_of(5)},
                                all = {row_of(1), row_of(5), row_of(6)};
  { MetricsSinks(folder.path(), kBoth, kept); }
  const std::string before = read_text_file(event_path(folder));
  { MetricsSinks(folder.path(), kBoth, kept).add(row_of(6)); }
  const std::string events = read_text_file(event_path(folder));
  EXPECT_TRUE(events.starts_with(before));
  EXPECT_EQ(keep_events(events, all).rows, 3u);
  EXPECT_EQ(keep_events(events, all).bytes.size(), events.size());
}

TEST(MetricsSinks, replace_the_last_row_in_every_file) {
  const TemporaryFolder once, twice;
  MetricsRow bare = row_of(2);
  bare.val_loss.reset(), bare.val_bits_per_byte.reset();
  MetricsSinks(once.path(), kBoth, rows_to(2));
  MetricsSinks sinks(twice.path(), kBoth, rows_to(1));
  sinks.add(bare);
  sinks.replace_last(row_of(2));
  EXPECT_EQ(json_lines(twice), json_lines(once));
  EXPECT_EQ(read_text_file(event_path(twice)).size(), read_text_file(event_path(once)).size());
  EXPECT_EQ(keep_events(read_text_file(event_path(twice)), rows_to(2)).rows, 2u);
}

TEST(MetricsSinks, say_once_that_a_file_is_gone_and_go_on) {
  const TemporaryFolder folder;
  MetricsSinks sinks(folder.path(), {}, {});
  std::filesystem::remove(folder.path() / "metrics.csv");
  testing::internal::CaptureStderr();
  for (const MetricsRow& row : rows_to(3)) {
    sinks.add(row);
    sinks.sync();
  }
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, testing::HasSubstr("metrics.csv was removed"));
  EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
}

TEST(MetricsSinks, refuse_a_format_by_name) {
  const std::vector<std::string> known = {"csv", "tensorboard", "jsonl"}, unknown = {"wandb"};
  EXPECT_THAT(parse_metrics_formats(known),
              testing::ElementsAre(MetricsFormat::TensorBoard, MetricsFormat::JsonLines));
  EXPECT_THROW(parse_metrics_formats(unknown), Error);
}

TEST(MetricsSinks, event_files_are_read_by_tensorboard) {
  HONE_REQUIRE_PEER("tensorboard");
  const TemporaryFolder folder;
  {
    MetricsSinks sinks(folder.path(), kBoth, {});
    for (const MetricsRow& row : rows_to(300)) sinks.add(row);
  }
  {
    MetricsSinks sinks(folder.path(), kBoth, rows_to(200));
    for (Index step = 201; step <= 260; ++step) sinks.add(row_of(step));
  }
  std::istringstream lines(test::run_peer("tests/train/trainer/read_events.py",
                                          {(folder.path() / "tensorboard").string()}));
  std::map<std::pair<std::string, Index>, double> found;
  std::string tag, value;
  for (Index step = 0; lines >> tag >> step >> value;) {
    const bool is_new =
        found.emplace(std::pair(tag, step), std::strtod(value.c_str(), nullptr)).second;
    EXPECT_TRUE(is_new) << tag << ' ' << step;
  }
  EXPECT_EQ(found.size(), 260u * 4 + 130 * 2);
  for (Index step = 1; step <= 260; ++step) {
    const MetricsRow want = row_of(step);
    EXPECT_EQ(found.at({"train/loss", step}), static_cast<float>(want.loss));
    EXPECT_EQ(found.at({"train/grad_norm", step}), static_cast<float>(want.grad_norm));
    if (step % 2 == 0) {
      EXPECT_EQ(found.at({"validation/loss", step}), 2.5);
    }
  }
}

}  // namespace
}  // namespace hone::trainer
