// SPDX-License-Identifier: Apache-2.0
// The one door to spdlog (whose headers cost half a minute a file). Any thread.
// Lines go to stderr as "gradmon: TEXT"; GRADMON_LOG=debug|info|warn|error|off
// sets what is shown (info).
#pragma once

#include <string_view>

namespace gradmon {

enum class LogLevel { debug, info, warn, error };

// Never throws and never waits: where stderr is a pipe that nobody reads the line
// is dropped and counted, and the next that can be written says how many; where
// its reader has gone no signal is raised.
void log(LogLevel level, std::string_view text) noexcept;

// From here on lines go to `write` instead of stderr: of a process without one.
// Once, before other threads log.
void log_to(void (*write)(LogLevel, std::string_view)) noexcept;

inline void log_debug(std::string_view text) noexcept { log(LogLevel::debug, text); }
inline void log_info(std::string_view text) noexcept { log(LogLevel::info, text); }
inline void log_warn(std::string_view text) noexcept { log(LogLevel::warn, text); }
inline void log_error(std::string_view text) noexcept { log(LogLevel::error, text); }

}  // namespace gradmon
