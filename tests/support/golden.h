// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gradmon {

// Empty if `now` is what NAME in the folder `golden` beside the test holds;
// otherwise the lines from the first to the last that differ, both ways, a
// screenful of each. With GRADMON_WRITE_GOLDEN=1 in the environment the file is
// first written anew: look at the diff before you commit it.
std::string golden_difference(const std::string& name, const std::string& now);

}  // namespace gradmon
