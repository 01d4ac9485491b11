// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gradmon {

// What NAME holds in the folder `golden` beside the test. With
// GRADMON_WRITE_GOLDEN=1 in the environment it is first written anew: look at
// the diff before you commit it.
std::string golden(const std::string& name, const std::string& now);

}  // namespace gradmon
