// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace gradmon {

// Wall-clock time, for people: milliseconds since 1970, UTC.
using WallTime = std::int64_t;

}  // namespace gradmon
