// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {

std::unique_ptr<Subcommand> convert_subcommand();

struct ConvertResult {
  int code = 0;
  std::string out;
  std::string err;
};

// Runs `gradmonctl convert WORDS…` in this process.
inline ConvertResult run_convert(std::vector<std::string> words) {
  words.insert(words.begin(), {"gradmonctl", "convert"});
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  Subcommands subcommands;
  subcommands.push_back(convert_subcommand());
  const auto subcommand =
      parse_command_line(std::move(subcommands), static_cast<int>(argv.size()), argv.data());
  if (!subcommand) return {subcommand.error().code, "", subcommand.error().text};
  std::ostringstream out, err;
  const int code = (*subcommand)->perform({out, err});
  return {code, out.str(), err.str()};
}

}  // namespace gradmon
