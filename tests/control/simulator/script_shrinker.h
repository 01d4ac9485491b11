// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "tests/control/simulator/script.h"

namespace gradmon {

// The script with as few incidents as still go wrong (delta debugging: halves
// left out, then quarters, … then single ones, until none can be), and with as
// plain a job. `goes_wrong` is asked of each try.
Script shrink(Script script, const std::function<bool(const Script&)>& goes_wrong);

}  // namespace gradmon
