// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/gradmonctl/terminal_process.h"

#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <stdexcept>

#include "control/files/descriptor.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"

namespace gradmon {

std::vector<std::string> lines_in_terminal(const Screen& screen, const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& environment) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(screen.columns);
  size.ws_row = static_cast<unsigned short>(screen.rows);
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("cannot create a pseudo terminal");
  if (child == 0) {
    for (const char* name : {"COLUMNS", "LINES"}) unsetenv(name);
    exec_gradmonctl(arguments, environment);
  }
  const Descriptor terminal(master);
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t n = 0; (n = read(terminal.get(), piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(n));
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0)
    throw std::runtime_error("gradmonctl failed in the terminal: " + text);
  return lines_of(text);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

}  // namespace gradmon
