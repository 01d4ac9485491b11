// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradmon {

struct RunRequest {
  std::int64_t ranks = 1;
  std::vector<std::string> command;  // the words after "--"
};

}  // namespace gradmon
