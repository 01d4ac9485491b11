// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Writes an output file that is not a sink's. The writer thread calls it, in order, and again after a
// failure.
struct FileToWrite {
  std::function<tl::expected<void, std::string>()> write;  // the error names the file
};

}  // namespace gradmon
