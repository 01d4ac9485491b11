// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "tools/convert/conversion_run.h"
#include "tools/convert/input_choice.h"
#include "tools/convert/new_database.h"

namespace gradmon {

// Writes the rows of all tasks into `database`. Returns when all rows are written, or after the meter was
// stopped. `threads`: the number of reading threads, at least 1, besides the calling thread, which writes;
// the database is the same for any number. The first error ends the conversion. Starts threads.
tl::expected<void, std::string> convert_to_database(const ConversionTasks& tasks, NewDatabase& database,
                                                    int threads, ConversionMeter& meter, Problems& problems);

}  // namespace gradmon
