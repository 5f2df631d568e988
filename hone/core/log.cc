// SPDX-License-Identifier: Apache-2.0
#include "hone/core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "hone/core/names.h"

namespace hone {
namespace {

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("hone");
    made->set_pattern("%^%l%$: %v");
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

LogLevel g_level = LogLevel::Info;

}  // namespace

void log(LogLevel level, std::string_view message) {
  logger().log(to_spdlog(level), "{}", escape_controls(message));
}

void set_log_level(LogLevel level) {
  g_level = level;
  logger().set_level(to_spdlog(level));
}

LogLevel log_level() { return g_level; }

}  // namespace hone
