// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/simulated_hubs/simulated_hubs_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace gradmon {
namespace {

constexpr int kPatienceMs = 60'000;

std::system_error failure(int error, const char* what) { return {error, std::generic_category(), what}; }

// Returns the read end.
Descriptor make_pipe(Descriptor& write_end) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw failure(errno, "pipe");
  write_end.reset(ends[1]);
  return Descriptor(ends[0]);
}

}  // namespace

SimulatedHubsProcess::SimulatedHubsProcess(const SimulatedHubsArguments& arguments) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string program = (self.parent_path() / "gradmon-bench-simulated-hubs").string();
  const Descriptor in = make_pipe(write_end_);
  Descriptor out_write;
  read_end_ = make_pipe(out_write);
  std::vector<std::string> words = arguments.words();
  words.insert(words.begin(), program);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDOUT_FILENO);
  const int error = posix_spawn(&process_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw failure(error, program.c_str());
}

SimulatedHubsProcess::~SimulatedHubsProcess() {
  write_end_.reset();
  read_end_.reset();
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

SimulatedHubsReport SimulatedHubsProcess::next() {
  for (;;) {
    if (const std::size_t end = read_.find('\n'); end != std::string::npos) {
      const auto report = SimulatedHubsReport::from(read_.substr(0, end));
      read_.erase(0, end + 1);
      if (report) return *report;
      continue;
    }
    pollfd wanted{read_end_.get(), POLLIN, 0};
    std::array<char, 4096> block;
    const bool ready = ::poll(&wanted, 1, kPatienceMs) > 0;
    const ssize_t n = ready ? ::read(read_end_.get(), block.data(), block.size()) : -1;
    if (n <= 0) throw std::runtime_error("not all simulated ranks received the verdict within a minute");
    read_.append(block.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace gradmon
