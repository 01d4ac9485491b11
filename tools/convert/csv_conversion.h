// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/convert/conversion_run.h"
#include "tools/convert/input_choice.h"
#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {

// The options shared by csv2tb and csv2db.
struct ConversionRequest {
  std::string monitor_path;  // "": MONITOR_OUTPUT_DIR, else ./monitor_output
  std::string time_start;    // "" and "None": no limit
  std::string time_end;
  std::int64_t process_num = 1;
  std::vector<std::string> data_types;  // each may be a list, as Python prints it; none: all
  std::string output;                   // "" and "None": a new directory
};

// Returns the output's place: the directory that the user names, or `{time}_{name}`, with the local time, in
// the input directory or beside the job's output directory.
enum class Place { within, beside };
std::filesystem::path output_directory_of(const ConversionRequest& request, const std::string& name,
                                          Place place);

// The parts shared by csv2tb and csv2db: options, choice of input, and the course of the conversion.
class CsvConversion : public SubcommandFor<ConversionRequest> {
 public:
  // msprobe's options, in kebab case and in msprobe's spelling.
  Arguments arguments() override;
  std::string complete() override;
  int perform(const Console& console) override;

 protected:
  // Sets target, earlier and write() of the conversion. The tasks live until write() has returned. The error
  // is the reason why the output cannot be made there.
  virtual tl::expected<void, std::string> choose_output(const ConversionTasks& tasks,
                                                        Conversion& conversion) = 0;

 private:
  InputChoice input_;
};

}  // namespace gradmon
