// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace gradmon {

// The value of an environment variable; none where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

// This process's own. Not while another thread may call setenv(3): on the
// training thread, when the Monitor is made.
inline std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace gradmon
