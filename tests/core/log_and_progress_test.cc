// SPDX-License-Identifier: Apache-2.0
// What reaches stderr, which is no terminal while it is captured.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

#include "hone/core/log.h"
#include "hone/core/progress.h"
#include "tests/support/scripted_clock.h"
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

TEST_F(ProgressTest, a_job_of_two_seconds_shows_nothing) {
  set_log_level(LogLevel::Info);
  test::ScriptedClock clock;
  EXPECT_EQ(captured([&] {
              Progress progress("packing", 1000, "tensors", clock);
              for (Index i = 1; i <= 1000; ++i) {
                clock.advance(0.0019);
                progress.update(i);
              }
            }),
            "");
}

TEST_F(ProgressTest, a_longer_job_writes_a_plain_line_after_two_seconds_then_every_few) {
  set_log_level(LogLevel::Info);
  test::ScriptedClock clock;
  const std::string text = captured([&] {
    Progress progress("training", 400, "steps", clock);
    for (Index i = 1; i <= 400; ++i) {
      clock.advance(0.1);
      progress.update(i, "loss 2.5");
    }
    for (int i = 0; i < 3; ++i) progress.update(400);  // shown already
  });
  std::istringstream lines(text);
  std::vector<std::string> shown;
  for (std::string line; std::getline(lines, line);) shown.push_back(line);
  // 2 s, then every 5 s, then the end of 40 s.
  ASSERT_EQ(shown.size(), 9u) << text;
  EXPECT_EQ(shown[0], "training 20/400 steps, 10/s, 38 s left, loss 2.5");
  EXPECT_EQ(shown[1], "training 70/400 steps, 10/s, 33 s left, loss 2.5");
  EXPECT_EQ(shown[8], "training 400/400 steps, 10/s, loss 2.5");
  EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos) << text;
}

TEST_F(ProgressTest, the_size_may_be_unknown_or_become_known) {
  set_log_level(LogLevel::Info);
  test::ScriptedClock clock;
  const std::string text = captured([&] {
    Progress unknown("reading", 0, "tokens", clock), grown("measuring", 0, "models", clock);
    clock.advance(3);
    unknown.update(7);
    grown.set_total(12);
    grown.update(3);
  });
  EXPECT_EQ(text, "reading 7 tokens, 2.333/s\nmeasuring 3/12 models, 1/s, 9 s left\n");
}

TEST_F(ProgressTest, a_quiet_job_writes_nothing) {
  set_log_level(LogLevel::Warning);
  test::ScriptedClock clock;
  EXPECT_EQ(captured([&] {
              Progress progress("never", 10, "steps", clock);
              clock.advance(60);
              progress.update(5);
            }),
            "");
}

// Runs `call` with a terminal as stderr. Returns what it wrote there.
std::string on_terminal(const std::function<void()>& call) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return "";
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(slave, STDERR_FILENO);
  call();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  for (const int descriptor : {before, slave}) ::close(descriptor);
  std::string text;
  std::array<char, 4096> bytes{};
  for (ssize_t count = 1; count > 0;) {  // an error at the end
    count = ::read(master, bytes.data(), bytes.size());
    text.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  ::close(master);
  return text;
}

TEST_F(ProgressTest, a_terminal_has_one_line_that_is_drawn_anew) {
  set_log_level(LogLevel::Info);
  test::ScriptedClock clock;
  const std::string text = on_terminal([&] {
    Progress progress("loading", 8, "tensors", clock);
    for (const double second : {1.9, 0.1, 0.05, 1.95}) {  // too soon, due, too soon, due
      clock.advance(second);
      progress.update(second < 1 ? 2 : 4);
    }
  });
  if (text.empty()) GTEST_SKIP() << "there are no pseudo-terminals";
  EXPECT_EQ(text,
            "\rloading [======                  ] 2/8 tensors, 1/s, 6 s left\x1b[K"
            "\rloading [============            ] 4/8 tensors, 1/s, 4 s left\x1b[K\r\n");
}

}  // namespace
}  // namespace hone
