// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/convert/input/conversion_meter.h"
#include "tools/convert/merge/job_runs.h"

namespace gradmon {

// Makes one database of all rows of the runs, which follow each other, with tables that say what job it is of
// (CONVERT.md). Of a step and kind that several runs have on a rank, the rows of the last run are taken.
// Returns when all is written, or after the meter was stopped. An error names the new file; what cannot be
// read is a problem. One thread.
tl::expected<void, std::string> merge_job(const std::vector<JobRun>& runs, const std::filesystem::path& file,
                                          const std::string& version, ConversionMeter& meter,
                                          Problems& problems);

}  // namespace gradmon
