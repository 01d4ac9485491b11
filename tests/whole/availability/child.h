// SPDX-License-Identifier: Apache-2.0
// Processes of a test: started with their environment, user and streams, and ended
// with the object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

struct ChildOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::filesystem::path output;  // standard output, and error where no descriptor is given; appended
  int error = -1;                // descriptor for standard error; -1: as output
  uid_t user = 0;                // 0: the test's own
};

class Child {
 public:
  explicit Child(const ChildOptions& options);
  // SIGKILL, and waits a second at most.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // The exit code, 128 + signal where it was killed; none: it has not ended in time.
  std::optional<int> wait(std::chrono::milliseconds at_most);

 private:
  const pid_t pid_;
  std::optional<int> code_;
};

struct Answer {
  int code = -1;  // 124: not in time, killed
  std::string out;
  std::string err;
  std::chrono::milliseconds took{0};
};
// Runs a program to its end.
Answer answer_of(ChildOptions options, std::chrono::milliseconds at_most);

// build/PRESET/bin/NAME
std::string test_binary(const std::string& name);

}  // namespace gradmon
