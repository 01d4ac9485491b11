// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/analyse/rows/problems.h"
#include "tools/convert/conversion_meter.h"
#include "tools/convert/unfinished_output.h"
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// The input and the output of a conversion.
struct Conversion {
  std::string input;             // for messages
  std::vector<int> ranks;        // ascending
  std::uint64_t bytes = 0;       // of the input
  std::filesystem::path target;  // the file or directory to make
  // The output of an earlier conversion that may exist.
  UnfinishedOutput::Earlier earlier = UnfinishedOutput::Earlier::nothing;
  // Makes the file or directory at `path`. Called on its own thread.
  std::function<tl::expected<void, std::string>(const std::filesystem::path& path, ConversionMeter& meter,
                                                Problems& problems)>
      write;
};

// Converts, shows the progress if stderr is a terminal, and reports `problems`, those found so far and those
// of the conversion. Afterwards the target is complete or missing; a signal that ends the process does so
// here. Returns the exit code.
int run_conversion(const Conversion& conversion, Problems& problems, const Console& console);

}  // namespace gradmon
