// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>

#include <iostream>

#include "tools/gradmonctl/command_line.h"

namespace {

// A closed stdout must not become the number of a socket.
void open_closed_streams() {
  for (const int fd : {0, 1, 2}) {
    if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDWR));
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gradmon;
  open_closed_streams();
  signal(SIGPIPE, SIG_IGN);
  const auto request = parse_command_line(argc, argv);
  if (!request) {
    (request.error().code == 0 ? std::cout : std::cerr) << request.error().text << std::flush;
    return request.error().code;
  }
  if (const auto* run = std::get_if<Launch>(&*request)) {
    const auto code = launch(*run);
    if (code) return *code;
    std::cerr << "gradmonctl: " << code.error() << '\n';
    return 1;
  }
  return 1;
}
