// SPDX-License-Identifier: Apache-2.0
#include "control/host/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a result comes back whole and an exception gives no result") {
  const std::string large(1 << 20, '\0');
  CHECK(run_in_child([&] { return large; }, seconds(20)) == large);
  CHECK(run_in_child([] { return std::string(); }, seconds(20)) == "");
  CHECK_FALSE(run_in_child([]() -> std::string { throw std::runtime_error("no"); }, seconds(20)));
  CHECK_FALSE(run_in_child([]() -> std::string { throw 1; }, seconds(20)));
}

TEST_CASE("work that hangs is ended at the timeout") {
  const auto hangs = [] {
    ::poll(nullptr, 0, -1);
    return std::string();
  };
  // Repeated: it waits for the end of the killed child only briefly.
  CHECK(eventually([&] {
    const auto begun = std::chrono::steady_clock::now();
    CHECK_FALSE(run_in_child(hangs, milliseconds(50)));
    CHECK(std::chrono::steady_clock::now() - begun < seconds(10));
    const bool none_left = ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    return none_left;
  }));
}

// Runs the shell's commands, which a user would put into a file, and returns how the process ended.
std::string run(const LimitedCommand& command) {
  auto process = LimitedProcess::start(command);
  if (!process) return process.error();
  std::string how;
  REQUIRE(eventually([&] {
    const auto ended = process->poll();
    how = ended.value_or("");
    return ended.has_value();
  }));
  return how;
}

LimitedCommand shell(const std::string& script, std::vector<std::string> more = {}) {
  LimitedCommand command;
  command.arguments = {"/bin/sh", "-c", script, "name"};
  command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  command.environment = {"PATH=/usr/bin:/bin"};
  return command;
}

// Not a dead one that its new parent has yet to wait for.
bool runs(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  return std::getline(file, line) && line.compare(line.rfind(')') + 1, 2, " Z") != 0;
}

TEST_CASE("a program gets its arguments, its environment and its input, and nothing else") {
  const TemporaryDirectory scratch;
  LimitedCommand command = shell(
      "cd \"$DIR\"; cat > input; printf '%s|' \"$@\" > arguments; env > environment;"
      "ls /proc/$$/fd > descriptors; ulimit -n > files; trap > traps",
      {"a b", "$HOME", "; touch evil"});
  command.environment.push_back("DIR=" + scratch.path().string());
  command.input = std::string(LimitedCommand::kMostInput, 'x');
  const int leaked = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  CHECK(run(command) == "");
  ::close(leaked);
  CHECK(read_text(scratch / "input") == command.input);
  CHECK(read_text(scratch / "arguments") == "a b|$HOME|; touch evil|");
  CHECK(read_text(scratch / "environment").find("HOME=") == std::string::npos);
  // 0 to 2, and what the shell itself has opened.
  const std::string descriptors = read_text(scratch / "descriptors");
  CHECK(descriptors.rfind("0\n1\n", 0) == 0);
  CHECK(descriptors.find(std::to_string(leaked) + "\n") == std::string::npos);
  CHECK(std::stoi(read_text(scratch / "files")) <= 1024);
  CHECK_FALSE(std::filesystem::exists(scratch / "evil"));
}

TEST_CASE("the end of a program is told") {
  CHECK(run(shell("exit 3")) == "exited with status 3");
  CHECK(run(shell("kill -9 $$")) == "was killed by signal 9");
  LimitedCommand absent;
  absent.arguments = {"/no/such/program"};
  CHECK(run(absent) == "could not be started: No such file or directory");
  absent.arguments = {"relative"};
  CHECK(run(absent) == "the program's path is not absolute");
  absent.arguments = {"/bin/true"};
  absent.input = std::string(LimitedCommand::kMostInput + 1, 'x');
  CHECK(run(absent) == "the input is too long");
}

TEST_CASE("a program that takes too long is killed with its children") {
  const TemporaryDirectory scratch;
  LimitedCommand command = shell("trap '' TERM HUP INT; sleep 1000 & echo $! > child; echo $$ > self; wait");
  command.arguments[2] = "cd " + scratch.path().string() + "; " + command.arguments[2];
  command.time_limit = milliseconds{3'000};
  CHECK(run(command) == "ran longer than 3 s and was killed");
  const pid_t child = std::stoi(read_text(scratch / "child"));
  const pid_t self = std::stoi(read_text(scratch / "self"));
  CHECK(eventually([&] { return !runs(child) && !runs(self); }));
}

TEST_CASE("what a program leaves in its process group ends with it") {
  const TemporaryDirectory scratch;
  CHECK(run(shell("cd " + scratch.path().string() + "; sleep 1000 & echo $! > child")) == "");
  const pid_t child = std::stoi(read_text(scratch / "child"));
  CHECK(eventually([&] { return !runs(child); }));
}

TEST_CASE("a program that does not read its input does not hold up its daemon") {
  const TemporaryDirectory scratch;
  const std::string fifo = (scratch / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  LimitedCommand command = shell("exec cat " + fifo);
  command.input = std::string(LimitedCommand::kMostInput, 'x');
  auto process = LimitedProcess::start(command);
  REQUIRE(process);
  CHECK_FALSE(process->poll());
  std::ofstream(fifo) << "the program may end\n";
  CHECK(eventually([&] { return process->poll().has_value(); }));
}

TEST_CASE("a program may be started beside busy threads") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back([&] {
      while (!stop) std::string(100, 'x').swap(*std::make_unique<std::string>());
    });
  }
  for (int i = 0; i < 20; ++i) CHECK(run(shell("exit 0")) == "");
  stop = true;
  for (std::thread& thread : busy) thread.join();
}

TEST_CASE("random bytes are two lower-case hex digits each and differ between calls") {
  CHECK(random_hex(0).empty());
  const std::string text = random_hex(16);
  CHECK(text.size() == 32);
  CHECK(text.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(text != random_hex(16));
}

TEST_CASE("a running process has a start time and an invalid pid has none") {
  CHECK(process_start_ticks(getpid()) > 0);
  CHECK(process_start_ticks(getpid()) == process_start_ticks(getpid()));
  CHECK(process_start_ticks(-1) == 0);
}

}  // namespace
}  // namespace gradmon
