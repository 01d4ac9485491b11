// SPDX-License-Identifier: Apache-2.0
// The logger. Any thread. Lines go to stderr as "gradmon: TEXT"; GRADMON_LOG=debug|info|warn|error|off
// (upper or lower case) sets the lowest level shown; the default is info. Only log.cc includes spdlog,
// because its headers add half a minute to the compilation of each file.
#pragma once

#include <string_view>

namespace gradmon {

enum class LogLevel { debug, info, warn, error };

// Never throws. Waits only for the disk of a regular file. If stderr is a pipe without a reading process,
// drops and counts the line; the count precedes the next line that can be written. If the pipe's reader is
// gone, raises no SIGPIPE.
void log(LogLevel level, std::string_view text) noexcept;

// From now on lines go to `write` instead of stderr, for a process without stderr. Call it once, before
// other threads log.
void set_log_sink(void (*write)(LogLevel, std::string_view)) noexcept;

inline void log_debug(std::string_view text) noexcept { log(LogLevel::debug, text); }
inline void log_info(std::string_view text) noexcept { log(LogLevel::info, text); }
inline void log_warn(std::string_view text) noexcept { log(LogLevel::warn, text); }
inline void log_error(std::string_view text) noexcept { log(LogLevel::error, text); }

}  // namespace gradmon
