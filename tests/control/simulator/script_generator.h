// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/control/simulator/script.h"

namespace gradmon {

// The history that a seed stands for.
Script script_of(std::uint64_t seed);

}  // namespace gradmon
