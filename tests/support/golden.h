// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gradmon {

// Compares `now` with the golden file NAME in the folder GRADMON_GOLDEN. Empty if
// they are equal; otherwise the lines of both from the first to the last
// difference, at most 12 of each. With GRADMON_WRITE_GOLDEN=1 in the environment
// the file is first overwritten with `now`: look at the diff before you commit it.
std::string golden_difference(const std::string& name, const std::string& now);

}  // namespace gradmon
