// SPDX-License-Identifier: Apache-2.0
// The options shared by csv2tb and csv2db.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/convert/commands/conversion_run.h"
#include "tools/convert/input/conversion_tasks.h"
#include "tools/convert/input/input_choice.h"
#include "tools/gradmonctl/parse/argument.h"

namespace gradmon {

struct ConversionRequest {
  std::string monitor_path;  // "": MONITOR_OUTPUT_DIR, else ./monitor_output
  std::string time_start;    // "" and "None": no limit
  std::string time_end;
  std::int64_t process_num = 1;
  std::vector<std::string> data_types;  // each may be a list, as Python prints it; none: all
  std::string output;                   // "" and "None": a new directory
};

// msprobe's options, in kebab case and in msprobe's spelling.
Arguments conversion_arguments(ConversionRequest& request);

// The error names the wrong option, the found and the expected value.
tl::expected<InputChoice, std::string> input_choice_of(const ConversionRequest& request);

// Returns the output's place: the directory that the user names, or `{time}_{name}`, with the local time, in
// the input directory or beside the job's output directory.
enum class Place { within, beside };
std::filesystem::path output_directory_of(const ConversionRequest& request, const std::string& name,
                                          Place place);

// The conversion of the tasks, still without target and write().
Conversion conversion_of(const InputChoice& input, const std::vector<RankInput>& ranks,
                         const ConversionTasks& tasks);

}  // namespace gradmon
