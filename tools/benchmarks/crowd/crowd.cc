// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/crowd/crowd.h"

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

}  // namespace

Crowd::Crowd(const CrowdArguments& arguments) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string program = (self.parent_path() / "gradmon-bench-crowd").string();
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (pipe2(in.data(), O_CLOEXEC) != 0) throw failure(errno, "pipe");
  if (pipe2(out.data(), O_CLOEXEC) != 0) throw failure(errno, "pipe");
  std::vector<std::string> words = arguments.words();
  words.insert(words.begin(), program);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  const int error = posix_spawn(&process_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  write_end_ = in[1];
  read_end_ = out[0];
  if (error != 0) throw failure(error, program.c_str());
}

Crowd::~Crowd() {
  ::close(write_end_);
  ::close(read_end_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

CrowdReport Crowd::next() {
  for (;;) {
    if (const std::size_t end = read_.find('\n'); end != std::string::npos) {
      const auto report = CrowdReport::from(read_.substr(0, end));
      read_.erase(0, end + 1);
      if (report) return *report;
      continue;
    }
    pollfd wanted{read_end_, POLLIN, 0};
    std::array<char, 4096> block;
    const bool ready = ::poll(&wanted, 1, kPatienceMs) > 0;
    const ssize_t n = ready ? ::read(read_end_, block.data(), block.size()) : -1;
    if (n <= 0) throw std::runtime_error("the members of the crowd were not all told a verdict");
    read_.append(block.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace gradmon
