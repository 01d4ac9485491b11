// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/isolation/hostile_clients.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "control/host/unix_socket.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

// Below kMaxFrameBytes: the hub must accept the frame and wait for the rest.
constexpr std::uint32_t kAnnounced = 2U << 20U;

std::string framed(const std::string& bytes, std::uint32_t announced) {
  std::string frame(sizeof announced, '\0');
  for (std::size_t i = 0; i < sizeof announced; ++i)
    frame[i] = static_cast<char>(announced >> (8 * i) & 0xFFU);
  return frame + bytes;
}

std::string history_commands() {
  Command command;
  command.verb = CommandVerb::history;
  command.request_id = "hostile";
  std::string frame = encode(Frame(command));
  frame = framed(frame, static_cast<std::uint32_t>(frame.size()));
  std::string many;
  for (int i = 0; i < 100; ++i) many += frame;
  return many;
}

const std::string& bytes_to_send(HostileClients::Kind kind) {
  static const std::string nothing;
  static const std::string endless = framed(std::string(65'536, 'x'), kAnnounced);
  static const std::string garbage(4096, '\xff');
  static const std::string questions = history_commands();
  switch (kind) {
    case HostileClients::Kind::idle:
      return nothing;
    case HostileClients::Kind::endless:
      return endless;
    case HostileClients::Kind::garbage:
      return garbage;
    case HostileClients::Kind::no_reader:
      return questions;
  }
  return nothing;
}

void raise_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

HostileClients::HostileClients(std::filesystem::path socket, Kind kind, int count)
    : socket_(std::move(socket)), kind_(kind), clients_(static_cast<std::size_t>(count), -1) {
  raise_descriptors();
  thread_ = std::thread([this] { run(); });
}

HostileClients::~HostileClients() {
  stopping_ = true;
  thread_.join();
  for (const int fd : clients_) {
    if (fd >= 0) close(fd);
  }
}

void HostileClients::run() {
  while (!stopping_) {
    for (int& fd : clients_) connect_and_send(fd);
    ::poll(nullptr, 0, 1);
  }
}

void HostileClients::connect_and_send(int& fd) {
  if (stopping_) return;
  if (fd < 0) fd = connect_unix(socket_).value_or(-1);
  if (fd < 0) return;
  const std::string& bytes = bytes_to_send(kind_);
  if (bytes.empty()) return;
  const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count > 0) sent_ += static_cast<std::uint64_t>(count);
  if (count < 0 && errno != EAGAIN && errno != EINTR) close(std::exchange(fd, -1));
}

}  // namespace gradmon
