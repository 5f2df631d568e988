// SPDX-License-Identifier: Apache-2.0
// What reaches stderr, which is no terminal while it is captured.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "hone/core/log.h"
#include "hone/core/progress.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

// Puts the level back, whatever the test does.
class LogTest : public testing::Test {
 protected:
  ~LogTest() override { set_log_level(before_); }
  const LogLevel before_ = log_level();
};
using ProgressTest = LogTest;

std::string captured(const std::function<void()>& call) {
  testing::internal::CaptureStderr();
  call();
  std::fflush(stderr);
  return testing::internal::GetCapturedStderr();
}

constexpr LogLevel kLevels[] = {LogLevel::Debug, LogLevel::Info, LogLevel::Warning,
                                LogLevel::Error};

TEST_F(LogTest, a_level_lets_through_itself_and_what_is_worse) {
  for (const LogLevel threshold : kLevels) {
    set_log_level(threshold);
    EXPECT_EQ(log_level(), threshold);
    for (const LogLevel level : kLevels) {
      const std::string text = captured([&] { log(level, "a message"); });
      if (level >= threshold) {
        EXPECT_NE(text.find("a message\n"), std::string::npos);
        EXPECT_EQ(std::ranges::count(text, '\n'), 1);
      } else {
        EXPECT_EQ(text, "");
      }
    }
  }
}

TEST_F(LogTest, braces_and_percent_signs_are_plain_text) {
  set_log_level(LogLevel::Info);
  EXPECT_NE(captured([] { log_info("{} {0:x} %s %n"); }).find("{} {0:x} %s %n\n"),
            std::string::npos);
}

TEST_F(LogTest, control_characters_cannot_reach_the_terminal) {
  set_log_level(LogLevel::Info);
  const std::string text = captured([] { log_warning("name\x1b[2J\nerror: forged"); });
  EXPECT_NE(text.find("name\\x1b[2J\\x0aerror: forged\n"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1);
}

TEST_F(LogTest, lines_of_several_threads_stay_whole) {
  set_log_level(LogLevel::Info);
  const std::string text = captured([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 200; ++i) log_info("0123456789abcdefghijklmnopqrstuvwxyz");
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  std::istringstream lines(text);
  std::set<std::string> different;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) different.insert(line);
  EXPECT_EQ(count, 800);
  EXPECT_EQ(different.size(), 1u);
}

TEST_F(ProgressTest, a_short_job_shows_nothing) {
  set_log_level(LogLevel::Info);
  EXPECT_EQ(captured([] {
              Progress progress("packing", 1000, "tensors");
              for (Index i = 1; i <= 1000; ++i) progress.update(i);
            }),
            "");
}

TEST_F(ProgressTest, a_long_job_writes_plain_lines_and_a_quiet_one_none) {
  std::string loud, quiet;
  loud = captured([&] {
    set_log_level(LogLevel::Warning);
    Progress silent("never", 10, "steps");
    set_log_level(LogLevel::Info);
    Progress known("training", 400, "steps"), unknown("reading", 0, "tokens");
    Progress grown("measuring", 0, "models");
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    known.update(50);  // past the first second, before the first line is due
    std::this_thread::sleep_for(std::chrono::milliseconds(3900));
    silent.update(5);
    known.update(100, "loss 2.5");
    unknown.update(7);
    grown.set_total(12);
    grown.update(3);
    for (Index i = 101; i < 400; ++i) known.update(i);  // too soon for another line
    known.update(400);                                  // the last one always
  });
  EXPECT_EQ(loud.find("never"), std::string::npos) << loud;
  EXPECT_EQ(loud.find('\r'), std::string::npos) << loud;
  EXPECT_EQ(loud.find('\x1b'), std::string::npos) << loud;
  EXPECT_EQ(std::ranges::count(loud, '\n'), 4) << loud;
  EXPECT_EQ(loud.find("training 100/400 steps, "), 0u) << loud;
  EXPECT_NE(loud.find(" s left, loss 2.5\n"), std::string::npos) << loud;
  EXPECT_NE(loud.find("reading 7 tokens, "), std::string::npos) << loud;
  const std::string after =
      loud.substr(std::min(loud.find("measuring 3/12 models, "), loud.size()));
  EXPECT_NE(after.substr(0, after.find('\n')).find("/s, "), std::string::npos) << loud;
  EXPECT_NE(after.substr(0, after.find('\n')).find(" s left"), std::string::npos) << loud;
  EXPECT_NE(loud.find("training 400/400 steps, "), std::string::npos) << loud;
}

}  // namespace
}  // namespace hone
