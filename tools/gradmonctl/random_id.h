// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gradmon {

// 128 random bits from the kernel, as 32 lower-case hex digits.
std::string random_id();

}  // namespace gradmon
