// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace hone {

// Records the object's lifetime as a zone of a Chrome trace (chrome://tracing, Perfetto). Off by
// default, when a zone costs one relaxed load. Names must be string literals.
class TraceZone {
 public:
  explicit TraceZone(const char* name) noexcept;
  TraceZone(const TraceZone&) = delete;
  TraceZone& operator=(const TraceZone&) = delete;
  ~TraceZone();

 private:
  const char* name_;
  std::int64_t begin_ns_;
};

void start_trace();
// Stops recording and writes the events as Chrome trace JSON. Zones still open are dropped.
void write_trace(const std::filesystem::path& path);

}  // namespace hone

#define HONE_TRACE_JOIN2(a, b) a##b
#define HONE_TRACE_JOIN(a, b) HONE_TRACE_JOIN2(a, b)
#define HONE_TRACE_ZONE(name) const ::hone::TraceZone HONE_TRACE_JOIN(hone_zone_, __LINE__)(name)
