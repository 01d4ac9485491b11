// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/launchers/launch_script.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <stdexcept>

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

std::uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = bind(fd, any, size) == 0 && getsockname(fd, any, &size) == 0;
  close(fd);
  if (!bound) throw std::runtime_error("no port");
  return ntohs(address.sin_port);
}

}  // namespace gradmon
