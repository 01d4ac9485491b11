// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/control/simulator/script.h"

namespace gradmon {

// Generates the script of a seed.
Script script_of(std::uint64_t seed);

}  // namespace gradmon
