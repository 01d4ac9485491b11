// SPDX-License-Identifier: Apache-2.0
// Short names. Every folder may include it.
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

namespace fs = std::filesystem;

// A value, or the reason why there is none, for people.
template <typename Value>
using Result = tl::expected<Value, std::string>;

}  // namespace gradmon
