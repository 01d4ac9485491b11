// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/launchers/launch_script.h"

#include <cstdlib>
#include <sstream>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {

std::vector<std::string> run_launch(const std::string& script, int seconds) {
  const TemporaryDirectory directory;
  write_text(directory / "launch", "export PRINT=" GRADMON_BIN "/print-launch-id HERE=" +
                                       directory.path().string() + "\n" + script + "\n");
  const std::string command = "timeout -k 1 " + std::to_string(seconds) + " bash " +
                              (directory / "launch").string() + " >" + (directory / "out").string() + " 2>" +
                              (directory / "error").string();
  const int status = std::system(command.c_str());
  INFO(read_text(directory / "error"));
  CHECK(status == 0);
  std::istringstream out(read_text(directory / "out"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  return lines;
}

std::string launch_id_of(const std::string& script, int ranks) {
  const auto lines = run_launch(script);
  REQUIRE(lines.size() == static_cast<std::size_t>(ranks));
  for (const std::string& line : lines) {
    REQUIRE(line == lines.front());
    REQUIRE(line.rfind("- ", 0) != 0);
  }
  return lines.front();
}

}  // namespace gradmon
