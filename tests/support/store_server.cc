// SPDX-License-Identifier: Apache-2.0
#include "tests/support/store_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace gradmon {
namespace {

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

}  // namespace

StoreServer::StoreServer(std::string host) : host_(std::move(host)) {
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  process_ = fork();
  if (process_ < 0) throw std::runtime_error("cannot start store-server: fork failed");
  if (process_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl(GRADMON_BIN "/store-server", "store-server", host_.c_str(), nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  const std::string port = read_line(out[0]);
  close(out[0]);
  if (port.empty()) throw std::runtime_error("store-server did not start");
  port_ = static_cast<std::uint16_t>(std::stoi(port));
}

StoreServer::~StoreServer() {
  kill();
  close(input_);
}

void StoreServer::pause() {
  if (process_ > 0) ::kill(process_, SIGSTOP);
}

void StoreServer::resume() {
  if (process_ > 0) ::kill(process_, SIGCONT);
}

void StoreServer::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  waitpid(std::exchange(process_, -1), nullptr, 0);
}

}  // namespace gradmon
