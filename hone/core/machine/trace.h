// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "hone/core/index.h"

namespace hone {

// An argument of a zone: {"rows", 32}. The name must be a string literal; text values are copied.
struct TraceArg {
  template <class Number>
  requires std::is_arithmetic_v<Number> TraceArg(const char* name_in, Number number)
      : name(name_in) {
    if constexpr (std::floating_point<Number>) {
      value = static_cast<double>(number);
    } else {
      value = static_cast<Index>(number);
    }
  }
  TraceArg(const char* name_in, std::string_view text) : name(name_in), value(text) {}

  const char* name;
  std::variant<Index, double, std::string_view> value;
};

// A span of time of one thread, for a Chrome trace; HONE_TRACE_ZONE makes one. Without a recording
// it costs one relaxed load when it begins and a comparison when it ends. `name` outlives the
// recording.
class TraceZone {
 public:
  explicit TraceZone(const char* name) noexcept {
    if (recording_.load(std::memory_order_relaxed)) [[unlikely]]
      begin(name);
  }
  TraceZone(const TraceZone&) = delete;
  TraceZone& operator=(const TraceZone&) = delete;
  ~TraceZone() {
    if (thread_ != nullptr) [[unlikely]]
      end();
  }

  bool is_recorded() const { return thread_ != nullptr; }
  void describe(std::initializer_list<TraceArg> args) noexcept;

 private:
  friend class TraceRecording;
  struct Thread;
  struct Recorder;

  void begin(const char* name) noexcept;
  void end() noexcept;

  static inline std::atomic<bool> recording_{false};
  Thread* thread_ = nullptr;  // null: not recorded
  std::size_t slot_ = 0;
  std::uint64_t recording_number_ = 0;
};

// Records zones while it lives. finish() writes them to a file for chrome://tracing and Perfetto.
// Only one recording may run at a time.
class TraceRecording {
 public:
  // Maximum number of recorded zones, some 130 bytes each; later zones are only counted.
  static constexpr Index kMaxZones = Index{1} << 20;

  // Throws Error{Io} if the file cannot be written, before the work to be recorded starts.
  explicit TraceRecording(const std::filesystem::path& file, Index max_zones = kMaxZones);
  TraceRecording(const TraceRecording&) = delete;
  TraceRecording& operator=(const TraceRecording&) = delete;
  // Calls finish() if it has not been called, and logs errors.
  ~TraceRecording();

  // Stops recording and renames the file to its final name (AtomicFile). Zones that are still open
  // end now.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sets the name of the calling thread in traces ("worker 3"). Call it before the thread's first
// zone; unnamed threads are numbered.
void name_thread(std::string name);

}  // namespace hone

// Records the enclosing block as a zone: HONE_TRACE_ZONE("gemm", {"rows", rows}, {"bytes",
// bytes()}). Arguments are evaluated only while zones are recorded. With arguments, the macro is
// two statements, so the body of a loop or an `if` needs braces.
#define HONE_TRACE_JOIN2(a, b) a##b
#define HONE_TRACE_JOIN(a, b) HONE_TRACE_JOIN2(a, b)
#define HONE_TRACE_ZONE_AS(zone, name, ...) \
  ::hone::TraceZone zone(name) __VA_OPT__(; if (zone.is_recorded()) zone.describe({__VA_ARGS__}))
#define HONE_TRACE_ZONE(name, ...) \
  HONE_TRACE_ZONE_AS(HONE_TRACE_JOIN(hone_zone_, __LINE__), name __VA_OPT__(, ) __VA_ARGS__)
