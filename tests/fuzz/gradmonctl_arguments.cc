// SPDX-License-Identifier: Apache-2.0
// Any command line is a request, help or a usage error. One argument a line.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fuzz/promise.h"
#include "tools/gradmonctl/command_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  std::vector<std::string> words{"gradmonctl"};
  for (std::string line; std::getline(lines, line);) words.push_back(line.c_str());
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto request = gradmon::parse_command_line(static_cast<int>(argv.size()), argv.data());
  if (request) return 0;
  gradmon::fuzz::promise(request.error().code == 0 || request.error().code == 2, "help is 0, misuse is 2");
  gradmon::fuzz::promise(!request.error().text.empty() && request.error().text.back() == '\n',
                         "whoever is refused is told why");
  return 0;
}
