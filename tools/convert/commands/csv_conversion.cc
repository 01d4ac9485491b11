// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/commands/csv_conversion.h"

#include <utility>

namespace gradmon {

std::string CsvConversion::complete() {
  auto input = input_choice_of(request());
  if (!input) return input.error();
  input_ = std::move(*input);
  return "";
}

int CsvConversion::perform(const Console& console) {
  Problems problems;
  const auto ranks = chosen_directories(input_, problems);
  if (!ranks) return report_error(ranks.error(), console);
  const ConversionTasks tasks = conversion_tasks(*ranks, input_.kinds, problems);
  Conversion conversion = conversion_of(input_, *ranks, tasks);
  if (const auto chosen = choose_output(tasks, conversion); !chosen)
    return report_error(chosen.error(), console);
  return run_conversion(conversion, problems, console);
}

}  // namespace gradmon
