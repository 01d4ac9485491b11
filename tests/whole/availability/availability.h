// SPDX-License-Identifier: Apache-2.0
// How a row of the table becomes a test.
#pragma once

#include <string>

#include "tests/whole/availability/incident.h"

namespace gradmon {

// Quick: one phase, by seed (GRADMON_AVAILABILITY_SEED, else 1). GRADMON_TEST_SCALE=full:
// all three. GRADMON_AVAILABILITY_PHASE=idle, on or open asks for that one. Prints
// what was seen; fails where something did not hold.
void check(const Fault& fault);

// A pattern for Fault::status: that rank's line of the table, or a sentence about it.
std::string of_rank(const std::string& rank, const std::string& what);

// GRADMON_TEST_SCALE=full
bool full_scale();

}  // namespace gradmon
