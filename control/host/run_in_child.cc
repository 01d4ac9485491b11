// SPDX-License-Identifier: Apache-2.0
#include "control/host/run_in_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "control/files/descriptor.h"
#include "control/files/durable_file.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kDone = 'd';  // marks the end of a complete answer
constexpr milliseconds kReapTime{200};

[[noreturn]] void answer(const std::function<std::string()>& work, int to) {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (stream != to) ::close(stream);
  }
  try {
    [[maybe_unused]] const bool written = write_all(to, work() + kDone);
  } catch (...) {  // Without the end marker the parent discards the answer.
  }
  ::_exit(0);
}

// Reads until the end of file or the deadline, and returns the bytes read.
std::string read_until(Clock::time_point deadline, int from) {
  std::string text;
  std::array<char, 65'536> piece{};
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd polled{from, POLLIN, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::max(left, milliseconds{0}).count()));
    if (ready == 0) return text;
    if (ready < 0) continue;
    const ssize_t n = ::read(from, piece.data(), piece.size());
    if (n <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace

void end_child(pid_t child) {
  ::kill(child, SIGKILL);
  const auto deadline = Clock::now() + kReapTime;
  while (Clock::now() < deadline) {
    const pid_t reaped = ::waitpid(child, nullptr, WNOHANG);
    if (reaped == child || (reaped < 0 && errno != EINTR)) return;
    ::poll(nullptr, 0, 1);
  }
}

std::optional<std::string> run_in_child(const std::function<std::string()>& work, milliseconds at_most) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) answer(work, to.get());
  to.reset();
  if (child < 0) return {};
  std::string text = read_until(Clock::now() + at_most, from.get());
  const bool done = !text.empty() && text.back() == kDone;
  end_child(child);
  if (!done) return {};
  text.pop_back();
  return text;
}

}  // namespace gradmon
