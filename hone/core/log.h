// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone {

enum class LogLevel { Debug, Info, Warning, Error };

// Writes a line to stderr. Messages below the level are dropped.
void log(LogLevel level, std::string_view message);
inline void log_debug(std::string_view message) { log(LogLevel::Debug, message); }
inline void log_info(std::string_view message) { log(LogLevel::Info, message); }
inline void log_warning(std::string_view message) { log(LogLevel::Warning, message); }
inline void log_error(std::string_view message) { log(LogLevel::Error, message); }

void set_log_level(LogLevel level);  // default Info
LogLevel log_level();

}  // namespace hone
