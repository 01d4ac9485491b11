// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/hostile/attack.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <random>
#include <stdexcept>
#include <vector>

namespace gradmon {
namespace {

constexpr uid_t kNobody = 65534;
constexpr int kCannotBecomeNobody = 99;

bool become_nobody() {
  if (geteuid() != 0) return true;
  return setgroups(0, nullptr) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
         setresuid(kNobody, kNobody, kNobody) == 0;
}

int socket_to(std::uint16_t port, int flags) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS) {
    close(fd);
    return -1;
  }
  return fd;
}

bool hung_up(int fd) {
  std::array<char, 256> greeting{};
  const ssize_t got = recv(fd, greeting.data(), greeting.size(), MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != ENOTCONN);
}

bool send_all(int fd, const std::vector<unsigned char>& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t done = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (done <= 0) return false;
    sent += static_cast<std::size_t>(done);
  }
  return true;
}

// ZMTP 3.0, mechanism CURVE.
std::vector<unsigned char> greeting() {
  std::vector<unsigned char> bytes(64, 0);
  bytes[0] = 0xff;
  bytes[9] = 0x7f;
  bytes[10] = 3;
  const std::string mechanism = "CURVE";
  std::copy(mechanism.begin(), mechanism.end(), bytes.begin() + 12);
  return bytes;
}

// A greeting, and the header of a long frame.
std::vector<unsigned char> header_of(std::uint64_t length) {
  std::vector<unsigned char> header = greeting();
  header.push_back(2);
  for (unsigned shift = 64; shift > 0;) header.push_back(static_cast<unsigned char>(length >> (shift -= 8U)));
  return header;
}

}  // namespace

Attack::Attack(const std::function<int()>& attack) : pid_(fork()) {
  if (pid_ < 0) throw std::runtime_error("cannot start an attack: fork failed");
  if (pid_ != 0) return;
  signal(SIGPIPE, SIG_IGN);
  alarm(200);
  if (!become_nobody()) _exit(kCannotBecomeNobody);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // here: setresuid() clears it
  _exit(attack());
}

Attack::~Attack() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Attack::running() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ > 0;
}

int Attack::wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int hold_idle_peers(std::uint16_t port, int count) {
  // A connection that finds the backlog full would be tried again only seconds later.
  constexpr int kMaxConnectsPerRound = 40;
  std::vector<int> peers(static_cast<std::size_t>(count), -1);
  for (;;) {
    int connecting = 0;
    for (int& peer : peers) {
      if (peer >= 0 && hung_up(peer)) {
        close(peer);
        peer = -1;
      }
      if (peer < 0 && connecting++ < kMaxConnectsPerRound) peer = socket_to(port, SOCK_NONBLOCK);
    }
    poll(nullptr, 0, 20);
  }
}

int send_noise(std::uint16_t port, int connections, unsigned seed) {
  std::mt19937 random(seed);
  int failed = 0;
  for (int i = 0; i < connections; ++i) {
    const int fd = socket_to(port, 0);
    if (fd < 0) {
      ++failed;
      continue;
    }
    std::vector<unsigned char> bytes(1 + random() % 2000);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    if (i % 4 == 0) bytes[0] = 0xff;  // The first byte of a greeting.
    send_all(fd, bytes);
    close(fd);
  }
  return failed > 255 ? 255 : failed;
}

int hold_unfinished_frames(std::uint16_t port, int count, std::uint64_t length) {
  std::vector<unsigned char> bytes = header_of(length);
  bytes.resize(bytes.size() + length - 1, 'x');
  struct Peer {
    int fd = -1;
    std::size_t sent = 0;
  };
  std::vector<Peer> peers(static_cast<std::size_t>(count));
  for (;;) {
    for (Peer& peer : peers) {
      if (peer.fd >= 0 && hung_up(peer.fd)) {
        close(peer.fd);
        peer = {};
      }
      if (peer.fd < 0) peer.fd = socket_to(port, SOCK_NONBLOCK);
      const ssize_t done =
          send(peer.fd, bytes.data() + peer.sent, bytes.size() - peer.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (done > 0) peer.sent += static_cast<std::size_t>(done);
    }
    poll(nullptr, 0, 1);
  }
}

int send_frame(std::uint16_t port, std::uint64_t length, std::uint64_t bytes) {
  const int fd = socket_to(port, 0);
  if (fd < 0) return 2;
  bool taken = send_all(fd, header_of(length));
  const std::vector<unsigned char> piece(std::size_t{1} << 20U, 'x');
  for (std::uint64_t sent = 0; taken && sent < bytes; sent += piece.size()) taken = send_all(fd, piece);
  close(fd);
  return taken ? 1 : 0;
}

}  // namespace gradmon
