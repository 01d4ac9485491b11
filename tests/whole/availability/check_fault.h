// SPDX-License-Identifier: Apache-2.0
// Runs a Fault as a test case.
#pragma once

#include <string>

#include "tests/whole/availability/fault_run.h"

namespace gradmon {

// Runs the fault (run_fault()) in one phase, chosen by the fault's name and the seed
// (GRADMON_AVAILABILITY_SEED, else 1). GRADMON_TEST_SCALE=full: in all three phases.
// GRADMON_AVAILABILITY_PHASE=idle, on or open: in that phase. Prints the course of
// events; fails the test if a promise was broken. Skips it where mounts are impossible.
void check_fault(const Fault& fault);

// A pattern for Fault::status: `what` in the rank's row of the table, or in a line that
// names the rank. `rank` and `what` are patterns, too.
std::string rank_pattern(const std::string& rank, const std::string& what);

}  // namespace gradmon
