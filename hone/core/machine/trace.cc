// SPDX-License-Identifier: Apache-2.0
#include "hone/core/machine/trace.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/log.h"
#include "hone/core/machine/clock.h"
#include "hone/core/version.h"

namespace hone {
namespace {

constexpr std::int64_t kStillOpen = -1;

struct Zone {
  const char* name;
  std::int64_t begin_ns, end_ns;
  std::uint32_t first_arg, args;
};

std::string& own_name() {
  thread_local std::string name;
  return name;
}

}  // namespace

// What one thread has recorded. Its mutex is taken by that thread, and by others only where a
// recording begins or ends.
struct TraceZone::Thread {
  std::mutex mutex;
  int number = 0;
  std::string name;
  std::vector<Zone> zones;
  std::vector<TraceArg> args;
  std::deque<std::string> texts;  // what args view

  void clear() {
    zones = {};
    args = {};
    texts = {};
  }
};

struct TraceZone::Recorder {
  static Recorder& get() {
    static Recorder recorder;
    return recorder;
  }

  Thread& this_thread() {
    thread_local const std::shared_ptr<Thread> thread = add_thread();
    return *thread;
  }

  void start(Index max_zones) {
    const std::lock_guard lock(mutex);
    ++number;
    std::erase_if(threads, [](const auto& thread) { return thread.use_count() == 1; });
    for (const auto& thread : threads) {
      const std::lock_guard own(thread->mutex);
      thread->clear();
    }
    limit = max_zones;
    wanted = 0;
    recording_.store(true, std::memory_order_release);
  }

  std::mutex mutex;  // guards threads
  std::vector<std::shared_ptr<Thread>> threads;
  std::atomic<Index> wanted{0};  // zones that began, kept or not
  std::atomic<Index> limit{0};
  std::atomic<std::uint64_t> number{0};  // of the recording; changes when it begins and ends

 private:
  std::shared_ptr<Thread> add_thread() {
    auto thread = std::make_shared<Thread>();
    const std::lock_guard lock(mutex);
    static int next = 0;
    thread->number = next++;
    thread->name = own_name().empty() ? concat("thread ", thread->number) : own_name();
    threads.push_back(thread);
    return thread;
  }
};

void TraceZone::begin(const char* name) noexcept try {
  Recorder& recorder = Recorder::get();
  if (recorder.wanted.fetch_add(1, std::memory_order_relaxed) >= recorder.limit) return;
  Thread& thread = recorder.this_thread();
  const std::lock_guard lock(thread.mutex);
  recording_number_ = recorder.number;
  slot_ = thread.zones.size();
  thread.zones.push_back({name, steady_clock().now_ns(), kStillOpen, 0, 0});
  thread_ = &thread;
} catch (const std::exception&) {  // without memory for it the zone is not recorded
}

void TraceZone::describe(std::initializer_list<TraceArg> args) noexcept try {
  const std::lock_guard lock(thread_->mutex);
  if (recording_number_ != Recorder::get().number) return;
  Zone& zone = thread_->zones[slot_];
  const std::size_t first = thread_->args.size();
  for (TraceArg arg : args) {
    if (auto* text = std::get_if<std::string_view>(&arg.value)) {
      *text = thread_->texts.emplace_back(*text);
    }
    thread_->args.push_back(arg);
  }
  zone.first_arg = static_cast<std::uint32_t>(first);
  zone.args = static_cast<std::uint32_t>(args.size());
} catch (const std::exception&) {
}

void TraceZone::end() noexcept {
  const std::int64_t now = steady_clock().now_ns();
  const std::lock_guard lock(thread_->mutex);
  if (recording_number_ == Recorder::get().number) thread_->zones[slot_].end_ns = now;
}

namespace {

constexpr std::string_view kTraceBegin = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"hone\":";

// A trace replaces an earlier one, and never a file of something else, such as an input.
void check_replaces_trace(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  std::ifstream file(path, std::ios::binary);
  std::string begin(kTraceBegin.size(), '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  const auto count = static_cast<std::size_t>(file.gcount());
  HONE_REQUIRE(count == 0 || begin.substr(0, count) == kTraceBegin, path.string(),
               "The file exists and is not a trace, so that the trace needs another name.");
}

}  // namespace

struct TraceRecording::State {
  explicit State(const std::filesystem::path& file)
      : out((check_replaces_trace(file), file)), path(file.string()) {}

  void write();
  void write_thread(const TraceZone::Thread& thread);
  void write_zone(const TraceZone::Thread& thread, const Zone& zone);
  void event(std::string_view text) {
    out.write(first ? "\n" : ",\n");
    out.write(text);
    first = false;
  }

  AtomicFile out;
  std::string path;
  std::int64_t begin_ns = steady_clock().now_ns(), end_ns = 0;
  bool first = true;
};

namespace {

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Nanoseconds as the format's microseconds.
std::string microseconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000),
                static_cast<int>(ns % 1000));
  return text;
}

std::string text_of(const TraceArg& arg) {
  if (const auto* number = std::get_if<Index>(&arg.value)) return concat(*number);
  if (const auto* number = std::get_if<double>(&arg.value)) return Json(*number).dump();
  return json_string(std::get<std::string_view>(arg.value));
}

}  // namespace

void TraceRecording::State::write_zone(const TraceZone::Thread& thread, const Zone& zone) {
  const std::int64_t begin = std::max(zone.begin_ns, begin_ns);
  const std::int64_t end = zone.end_ns == kStillOpen ? end_ns : zone.end_ns;
  std::string text = concat("{\"name\":", json_string(zone.name),
                            ",\"ph\":\"X\",\"pid\":1,\"tid\":", thread.number,
                            ",\"ts\":", microseconds(begin - begin_ns),
                            ",\"dur\":", microseconds(std::max<std::int64_t>(end - begin, 0)));
  for (std::uint32_t i = 0; i < zone.args; ++i) {
    const TraceArg& arg = thread.args[zone.first_arg + i];
    text += concat(i == 0 ? ",\"args\":{" : ",", json_string(arg.name), ':', text_of(arg));
  }
  event(text + (zone.args > 0 ? "}}" : "}"));
}

void TraceRecording::State::write_thread(const TraceZone::Thread& thread) {
  if (thread.zones.empty()) return;
  event(concat("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":", thread.number,
               ",\"args\":{\"name\":", json_string(thread.name), "}}"));
  for (const Zone& zone : thread.zones) write_zone(thread, zone);
}

void TraceRecording::State::write() {
  TraceZone::Recorder& recorder = TraceZone::Recorder::get();
  end_ns = steady_clock().now_ns();
  const std::lock_guard lock(recorder.mutex);
  ++recorder
        .number;  // before zones are taken away: those that are still open then leave them alone
  const Index left_out = std::max<Index>(recorder.wanted - recorder.limit, 0);
  check_replaces_trace(path);  // the command may have written a file of this name
  out.write(concat(kTraceBegin, json_string(version_text()), ",\"zones_left_out\":", left_out,
                   "},\"traceEvents\":["));
  for (const auto& thread : recorder.threads) {
    const std::lock_guard own(thread->mutex);
    write_thread(*thread);
    thread->clear();
  }
  if (left_out > 0) {
    event(concat("{\"name\":\"", left_out, " later zones are left out\",\"ph\":\"i\",\"s\":\"g\",",
                 "\"pid\":1,\"tid\":0,\"ts\":", microseconds(end_ns - begin_ns), "}"));
    log_warning(concat(path, " has the first ", recorder.limit.load(), " zones; ", left_out,
                       " later ones are left out"));
  }
  out.write("\n]}\n");
  out.commit();
}

TraceRecording::TraceRecording(const std::filesystem::path& file, Index max_zones)
    : state_(std::make_unique<State>(file)) {
  HONE_CHECK(!TraceZone::recording_, "trace", "one recording at a time", "a second one");
  TraceZone::Recorder::get().start(max_zones);
}

TraceRecording::~TraceRecording() {
  if (state_ == nullptr) return;
  try {
    finish();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

void TraceRecording::finish() {
  if (state_ == nullptr) return;
  TraceZone::recording_.store(false, std::memory_order_relaxed);
  const std::unique_ptr<State> state = std::move(state_);
  state->write();
}

void name_thread(std::string name) { own_name() = std::move(name); }

}  // namespace hone
