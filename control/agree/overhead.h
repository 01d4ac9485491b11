// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "gradmon/status.h"

namespace gradmon {

// A share for people: "4.1 %".
std::string percent_text(double share);

}  // namespace gradmon
