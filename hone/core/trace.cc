// SPDX-License-Identifier: Apache-2.0
#include "hone/core/trace.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "hone/core/clock.h"
#include "hone/core/file_io.h"
#include "hone/core/json_io.h"

namespace hone {
namespace {

struct Event {
  const char* name;
  std::int64_t begin_ns, end_ns;
  int thread;
};

// A trace of 4 million zones takes 128 MB; further zones are dropped.
constexpr std::size_t kMaxEvents = std::size_t{1} << 22;

std::atomic<bool> g_recording{false};
std::mutex g_mutex;  // guards g_events
std::vector<Event> g_events;

int thread_number() {
  static std::atomic<int> next{0};
  thread_local const int number = next++;
  return number;
}

}  // namespace

TraceZone::TraceZone(const char* name) noexcept
    : name_(g_recording.load(std::memory_order_relaxed) ? name : nullptr),
      begin_ns_(name_ == nullptr ? 0 : steady_clock().now_ns()) {}

TraceZone::~TraceZone() {
  if (name_ == nullptr || !g_recording.load(std::memory_order_relaxed)) return;
  const std::int64_t end_ns = steady_clock().now_ns();
  const std::lock_guard lock(g_mutex);
  if (g_events.size() < kMaxEvents) g_events.push_back({name_, begin_ns_, end_ns, thread_number()});
}

void start_trace() {
  const std::lock_guard lock(g_mutex);
  g_events.clear();
  g_recording = true;
}

void write_trace(const std::filesystem::path& path) {
  g_recording = false;
  const std::lock_guard lock(g_mutex);
  Json events = Json::array();
  for (const Event& event : g_events) {
    events.push_back({{"name", event.name},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", event.thread},
                      {"ts", static_cast<double>(event.begin_ns) * 1e-3},
                      {"dur", static_cast<double>(event.end_ns - event.begin_ns) * 1e-3}});
  }
  write_json_file(path, {{"traceEvents", events}, {"displayTimeUnit", "ms"}});
}

}  // namespace hone
