// SPDX-License-Identifier: Apache-2.0
#include "control/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace gradmon {
namespace {

spdlog::level::level_enum level_from_environment() {
  const char* wanted = std::getenv("GRADMON_LOG");
  return wanted == nullptr ? spdlog::level::info : spdlog::level::from_str(wanted);
}

// Leaked on purpose: threads may log while static objects are destroyed.
spdlog::logger& logger() {
  static spdlog::logger* const made = [] {
    auto* l = new spdlog::logger("gradmon", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    l->set_pattern("gradmon: %v");
    l->set_level(level_from_environment());
    l->flush_on(spdlog::level::debug);
    return l;
  }();
  return *made;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void log(LogLevel level, std::string_view text) noexcept {
  try {
    logger().log(to_spdlog(level), "{}", text);
  } catch (...) {  // A full disk behind stderr must not reach training.
  }
}

}  // namespace gradmon
