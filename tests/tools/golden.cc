// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/golden.h"

#include <cstdlib>
#include <fstream>

#include "tests/temporary_directory.h"

namespace gradmon {

std::string golden(const std::string& name, const std::string& now) {
  const std::string path = std::string(GRADMON_GOLDEN) + "/" + name;
  if (std::getenv("GRADMON_WRITE_GOLDEN") != nullptr) std::ofstream(path) << now;
  return read_text(path);
}

}  // namespace gradmon
