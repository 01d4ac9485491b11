// SPDX-License-Identifier: Apache-2.0
// Any command line is a command, help or a usage error. Input: one argument per line.
#include <sstream>

#include "tests/fuzz/promise.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/commands/commands.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  std::vector<std::string> words{"gradmonctl"};
  for (std::string line; std::getline(lines, line);) words.push_back(line.c_str());
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto subcommand =
      gradmon::parse_command_line(gradmon::all_subcommands(), static_cast<int>(argv.size()), argv.data());
  if (subcommand) return 0;
  const gradmon::ParseExit& parse_exit = subcommand.error();
  gradmon::fuzz::promise(parse_exit.code == 0 || parse_exit.code == 2, "help exits with 0, misuse with 2");
  gradmon::fuzz::promise(!parse_exit.text.empty() && parse_exit.text.back() == '\n',
                         "help and refusals have a text that ends with a line end");
  return 0;
}
