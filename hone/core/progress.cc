// SPDX-License-Identifier: Apache-2.0
#include "hone/core/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "hone/core/log.h"
#include "hone/core/names.h"

namespace hone {
namespace {

constexpr double kQuietSeconds = 2.0;  // shorter jobs show nothing
constexpr double kTerminalEvery = 0.1, kPlainEvery = 5.0;
constexpr Index kBarWidth = 24;

std::string format_duration(double seconds) {
  const auto whole = static_cast<Index>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
}

}  // namespace

struct Progress::State {
  std::string title, unit;
  Index total = 0;
  bool terminal = false, silent = false, drawn = false;
  Index shown = 0;  // in the last line
  const Clock* clock = nullptr;
  TimeNs begin_ns = 0, last_ns = 0;
  std::mutex mutex;

  // The first line is due after kQuietSeconds, and the last one, once, if there was another.
  bool is_due(Index done, TimeNs now) const {
    if (!drawn) return seconds_between(begin_ns, now) >= kQuietSeconds;
    if (total > 0 && done >= total) return done != shown;
    return seconds_between(last_ns, now) >= (terminal ? kTerminalEvery : kPlainEvery);
  }

  std::string line(Index done, std::string_view note, double elapsed) const {
    const double rate = elapsed > 0 ? static_cast<double>(done) / elapsed : 0;
    std::string text = title;
    if (total > 0) {
      const Index filled = std::min(kBarWidth, done * kBarWidth / total);
      if (terminal) {
        text += fmt::format(" [{:=<{}}{:{}}]", "", filled, "", kBarWidth - filled);
      }
      text += fmt::format(" {}/{}", done, total);
    } else {
      text += fmt::format(" {}", done);
    }
    text += fmt::format(" {}, {:.4g}/s", unit, rate);
    if (total > done && rate > 0) {
      text += fmt::format(", {} left", format_duration(static_cast<double>(total - done) / rate));
    }
    if (!note.empty()) text += fmt::format(", {}", escape_controls(note));
    return text;
  }
};

Progress::Progress(std::string_view title, Index total, std::string_view unit, const Clock& clock)
    : state_(std::make_unique<State>()) {
  state_->title = title;
  state_->unit = unit;
  state_->total = total;
  state_->terminal = ::isatty(STDERR_FILENO) == 1;
  state_->silent = log_level() > LogLevel::Info;
  state_->clock = &clock;
  state_->begin_ns = state_->last_ns = clock.now_ns();
}

Progress::~Progress() {
  if (state_->terminal && state_->drawn) std::fputc('\n', stderr);
}

void Progress::set_total(Index total) {
  const std::lock_guard lock(state_->mutex);
  state_->total = total;
}

void Progress::update(Index done, std::string_view note) {
  if (state_->silent) return;
  const std::lock_guard lock(state_->mutex);
  const TimeNs now = state_->clock->now_ns();
  if (!state_->is_due(done, now)) return;
  state_->last_ns = now;
  state_->drawn = true;
  state_->shown = done;
  const std::string text = state_->line(done, note, seconds_between(state_->begin_ns, now));
  if (state_->terminal) {
    std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  std::fflush(stderr);
}

}  // namespace hone
