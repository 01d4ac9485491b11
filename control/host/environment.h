// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace gradmon {

// Returns the value of an environment variable; nullopt if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

// Reads this process's environment. No other thread may call setenv(3) meanwhile: call this on the
// training thread, while the Monitor is constructed.
inline std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// process_environment(), or "" if the variable is not set.
inline std::string environment_text(const char* name) { return process_environment(name).value_or(""); }

}  // namespace gradmon
