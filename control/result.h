// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// A value, or the reason why there is none, for people. Every folder may include it.
template <typename Value>
using Result = tl::expected<Value, std::string>;

}  // namespace gradmon
