// SPDX-License-Identifier: Apache-2.0
#include "hone/core/machine/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// What `call` records: the whole document.
Json record(const std::function<void()>& call, Index max_zones = TraceRecording::kMaxZones) {
  const test::TemporaryFolder folder;
  TraceRecording recording(folder.path() / "trace.json", max_zones);
  call();
  recording.finish();
  return read_json_file(folder.path() / "trace.json");
}

std::vector<Json> zones_of(const Json& trace) {
  std::vector<Json> zones;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") zones.push_back(event);
  }
  return zones;
}

std::vector<std::string> names_of(const Json& trace) {
  std::vector<std::string> names;
  for (const Json& zone : zones_of(trace)) names.push_back(zone["name"].get<std::string>());
  return names;
}

double end_of(const Json& zone) { return zone["ts"].get<double>() + zone["dur"].get<double>(); }

TEST(Trace, zones_nest_in_time_and_carry_their_thread) {
  const Json trace = record([] {
    HONE_TRACE_ZONE("outer");
    std::thread([] {
      name_thread("helper");
      HONE_TRACE_ZONE("other thread");
    }).join();
    HONE_TRACE_ZONE("inner");
  });
  const auto zones = zones_of(trace);
  ASSERT_THAT(names_of(trace), ElementsAre("outer", "inner", "other thread"));
  EXPECT_NE(zones[2]["tid"], zones[0]["tid"]);
  EXPECT_EQ(zones[1]["tid"], zones[0]["tid"]);
  for (const Json& inner : {zones[1], zones[2]}) {
    EXPECT_GE(inner["ts"].get<double>(), zones[0]["ts"].get<double>());
    EXPECT_LE(end_of(inner), end_of(zones[0]) + 1e-3);  // rounding of µs
  }
  bool named = false;
  for (const Json& event : trace["traceEvents"]) {
    named |=
        event["ph"] == "M" && event["tid"] == zones[2]["tid"] && event["args"]["name"] == "helper";
  }
  EXPECT_TRUE(named);
}

TEST(Trace, times_of_neighbors_add_up_to_no_more_than_the_zone_around_them) {
  const Json trace = record([] {
    HONE_TRACE_ZONE("outer");
    for (int i = 0; i < 3; ++i) {
      HONE_TRACE_ZONE("part");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const auto zones = zones_of(trace);
  ASSERT_EQ(zones.size(), 4u);
  double sum = 0;
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_GE(zones[i]["dur"].get<double>(), 2000);
    if (i > 1) {
      EXPECT_GE(zones[i]["ts"].get<double>(), end_of(zones[i - 1]) - 1e-3);
    }
    sum += zones[i]["dur"].get<double>();
  }
  EXPECT_LE(sum, zones[0]["dur"].get<double>() + 3e-3);
}

TEST(Trace, zones_carry_numbers_and_copies_of_texts) {
  const Json trace = record([] {
    std::string text = "a \"name\"\n";
    HONE_TRACE_ZONE("sized", {"rows", 3}, {"bytes", std::size_t{1} << 40}, {"share", 0.5},
                    {"tensor", text});
    text = "gone";
  });
  EXPECT_EQ(
      zones_of(trace).at(0)["args"],
      (Json{{"rows", 3}, {"bytes", Index{1} << 40}, {"share", 0.5}, {"tensor", "a \"name\"\n"}}));
}

TEST(Trace, without_a_recording_arguments_are_not_even_evaluated) {
  int evaluated = 0;
  const auto work = [&] { HONE_TRACE_ZONE("work", {"count", ++evaluated}); };
  work();
  EXPECT_EQ(evaluated, 0);
  EXPECT_EQ(names_of(record(work)).size(), 1u);
  EXPECT_EQ(evaluated, 1);
  work();
  EXPECT_EQ(evaluated, 1);
}

TEST(Trace, a_recording_forgets_the_last_one_and_ends_what_is_open) {
  EXPECT_EQ(names_of(record([] {
              for (int i = 0; i < 3; ++i) HONE_TRACE_ZONE("first");
            })).size(),
            3u);
  EXPECT_TRUE(names_of(record([] {})).empty());
  const test::TemporaryFolder folder;
  {
    HONE_TRACE_ZONE("opened before the recording");
    TraceRecording recording(folder.path() / "a.json");
    HONE_TRACE_ZONE("still open");
    recording.finish();
    recording.finish();  // once is enough
    HONE_TRACE_ZONE("after it", {"rows", 1});
  }
  const Json trace = read_json_file(folder.path() / "a.json");
  ASSERT_THAT(names_of(trace), ElementsAre("still open"));
  EXPECT_GE(zones_of(trace)[0]["dur"].get<double>(), 0);
}

TEST(Trace, memory_is_bounded_and_says_what_it_left_out) {
  testing::internal::CaptureStderr();
  const Json trace = record(
      [] {
        for (int i = 0; i < 5; ++i) {
          HONE_TRACE_ZONE("one", {"i", i});
        }
      },
      3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the first 3 zones; 2 later ones are left out"));
  EXPECT_EQ(zones_of(trace).size(), 3u);
  EXPECT_EQ(zones_of(trace)[2]["args"]["i"], 2);
  EXPECT_EQ(trace["otherData"]["zones_left_out"], 2);
  EXPECT_EQ(trace["traceEvents"].back()["name"], "2 later zones are left out");
}

TEST(Trace, every_thread_keeps_its_own_zones) {
  constexpr int kThreads = 8, kZones = 500;
  const Json trace = record([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < kZones; ++i) {
          HONE_TRACE_ZONE("zone", {"thread", t}, {"i", i});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  std::map<int, std::vector<int>> counts;  // by thread of the trace
  std::map<int, std::set<int>> owners;
  for (const Json& zone : zones_of(trace)) {
    counts[zone["tid"].get<int>()].push_back(zone["args"]["i"].get<int>());
    owners[zone["tid"].get<int>()].insert(zone["args"]["thread"].get<int>());
  }
  ASSERT_EQ(counts.size(), std::size_t{kThreads});
  for (const auto& [tid, order] : counts) {
    EXPECT_EQ(order.size(), std::size_t{kZones});
    EXPECT_TRUE(std::ranges::is_sorted(order));
    EXPECT_EQ(owners[tid].size(), 1u);
  }
}

TEST(Trace, is_refused_before_the_work_where_the_file_cannot_be_written) {
  const test::TemporaryFolder folder;
  const auto open = [](const fs::path& file) { const TraceRecording recording(file); };
  for (const fs::path& file :
       {folder.path() / "absent/trace.json", folder.path(), fs::path("/dev/null")}) {
    EXPECT_NE(test::refusal([&] { open(file); }, ErrorCategory::Io), "") << file;
  }
  const TraceRecording first(folder.path() / "a.json");
  EXPECT_THAT(test::refusal([&] { open(folder.path() / "b.json"); }), HasSubstr("one recording"));
  EXPECT_FALSE(fs::exists(folder.path() / "b.json"));
}

TEST(Trace, replaces_a_trace_and_no_other_file) {
  const test::TemporaryFolder folder;
  const fs::path model = folder.path() / "model.gguf", file = folder.path() / "trace.json";
  write_text_file(model, "GGUF");
  EXPECT_THAT(test::refusal([&] { const TraceRecording recording(model); }),
              HasSubstr("not a trace"));
  EXPECT_EQ(read_text_file(model), "GGUF");
  write_text_file(file, "");
  for (int run = 0; run < 2; ++run) {
    TraceRecording recording(file);
    { HONE_TRACE_ZONE("works"); }
    recording.finish();
    EXPECT_THAT(names_of(read_json_file(file)), ElementsAre("works"));
  }
  TraceRecording late(folder.path() / "late.json");
  write_text_file(folder.path() / "late.json", "the command's own output");
  EXPECT_THAT(test::refusal([&] { late.finish(); }), HasSubstr("not a trace"));
  EXPECT_EQ(read_text_file(folder.path() / "late.json"), "the command's own output");
}

TEST(Trace, an_exception_leaves_a_whole_file_and_no_temporary) {
  const test::TemporaryFolder folder;
  const fs::path file = folder.path() / "trace.json";
  try {
    const TraceRecording recording(file);
    HONE_TRACE_ZONE("fails");
    EXPECT_FALSE(fs::exists(file)) << "under its name only when it is whole";
    fail_argument("test", "this", "that");
  } catch (const Error&) {
  }
  EXPECT_THAT(names_of(read_json_file(file)), ElementsAre("fails"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace hone
