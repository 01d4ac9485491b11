// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>

#include "tools/gradmonctl/commands/all_subcommands.h"
#include "tools/gradmonctl/parse/command_line.h"
#include "tools/gradmonctl/show/screen.h"

namespace {

// If a standard stream is closed, a socket could get its descriptor number.
void open_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDWR));
  }
}

bool clears_screen() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

// A closed pipe is no error; a full disk is.
int after_last_output(int code) {
  if (std::cout.flush() || errno == EPIPE) return code;
  std::cerr << "gradmonctl: cannot write: " << std::strerror(errno) << '\n';
  return code == gradmon::kExitDone ? gradmon::kExitFailed : code;
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_streams();
  signal(SIGPIPE, SIG_IGN);
  const auto subcommand = gradmon::parse_command_line(gradmon::all_subcommands(), argc, argv);
  if (!subcommand) {
    const gradmon::ParseExit& nothing = subcommand.error();
    (nothing.code == gradmon::kExitDone ? std::cout : std::cerr) << nothing.text;
    return after_last_output(nothing.code);
  }
  const gradmon::Console console{std::cout, std::cerr, clears_screen(), gradmon::screen_of(STDOUT_FILENO)};
  return after_last_output((*subcommand)->perform(console));
}
