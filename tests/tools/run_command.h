// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {

std::unique_ptr<Subcommand> analyse_subcommand();
std::unique_ptr<Subcommand> convert_subcommand();

struct CommandResult {
  int code = 0;
  std::string out;
  std::string err;
};

// Runs `gradmonctl NAME WORDS…` in this process.
inline CommandResult run_command(const std::string& name, std::unique_ptr<Subcommand> command,
                                 std::vector<std::string> words, std::optional<Screen> screen = {}) {
  words.insert(words.begin(), {"gradmonctl", name});
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  Subcommands subcommands;
  subcommands.push_back(std::move(command));
  const auto subcommand =
      parse_command_line(std::move(subcommands), static_cast<int>(argv.size()), argv.data());
  if (!subcommand) return {subcommand.error().code, "", subcommand.error().text};
  std::ostringstream out, err;
  const int code = (*subcommand)->perform({out, err, false, screen});
  return {code, out.str(), err.str()};
}

inline CommandResult run_analyse(std::vector<std::string> words, std::optional<Screen> screen = {}) {
  return run_command("analyse", analyse_subcommand(), std::move(words), screen);
}

inline CommandResult run_convert(std::vector<std::string> words) {
  return run_command("convert", convert_subcommand(), std::move(words));
}

}  // namespace gradmon
