// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "tools/convert/database/new_database.h"
#include "tools/convert/input/conversion_meter.h"
#include "tools/convert/input/conversion_tasks.h"

namespace gradmon {

// Writes the rows of all tasks into `database`. Returns when all is written, or after the meter was stopped.
// `threads`: so many threads read at a time, at least 1, beside the calling one, which writes; the database
// is the same with any number. The first error ends the conversion. Starts threads.
tl::expected<void, std::string> convert_to_database(const ConversionTasks& tasks, NewDatabase& database,
                                                    int threads, ConversionMeter& meter, Problems& problems);

}  // namespace gradmon
