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

namespace gradmon {
namespace {

[[noreturn]] void become_gradmonctl(const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> words{const_cast<char*>("gradmonctl")};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(GRADMONCTL, words.data());
  _exit(125);
}

}  // namespace

std::vector<std::string> lines_in_terminal(const Screen& screen, const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& environment) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(screen.columns);
  size.ws_row = static_cast<unsigned short>(screen.rows);
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("no terminal can be had");
  if (child == 0) become_gradmonctl(arguments, environment);
  const Descriptor terminal(master);
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t n = 0; (n = read(terminal.get(), piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(n));
  waitpid(child, nullptr, 0);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

}  // namespace gradmon
