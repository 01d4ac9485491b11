// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "tools/convert/conversion_run.h"
#include "tools/convert/input_choice.h"
#include "writers/sinks/row_encoder.h"

namespace gradmon {

// Writes event files as `output`/rank{R}/{prefix}/events…, one directory for each task that has rows. Returns
// when all are written, or after the meter was stopped. `threads`: the number of directories made at a time,
// at least 1; the files have the same content for any number. The first error ends the conversion, and names
// the file. Starts threads.
tl::expected<void, std::string> convert_to_tensorboard(const ConversionTasks& tasks,
                                                       const std::filesystem::path& output, TagForm form,
                                                       int threads, ConversionMeter& meter,
                                                       Problems& problems);

}  // namespace gradmon
