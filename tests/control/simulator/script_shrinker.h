// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "tests/control/simulator/script.h"

namespace gradmon {

// A smaller script that still fails. Delta debugging: leaves out halves of the
// incidents, then quarters, … then single ones, until none can be left out. Also
// simplifies the job. Calls `fails` for each attempt.
Script shrink(Script script, const std::function<bool(const Script&)>& fails);

}  // namespace gradmon
