// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "control/agree/journal.h"

namespace gradmon {

// As "2026-07-06 12:34:56 UTC"; "" for 0.
std::string utc_text(WallTime time);
// A span of milliseconds, as "3 ms", "1.5 s", "90 s", "12 min" or "5 h".
std::string span_text(std::int64_t milliseconds);

}  // namespace gradmon
