// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace gradmon {

// A directory of the test's own, removed with it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::string text_of(const std::filesystem::path& file);  // "" where there is none

// Looks until `condition` holds; false after 20 s.
bool comes_true(const std::function<bool()>& condition);

// gradmonctl as a user runs it. Killed, where it still runs, with this object.
class GradmonctlProcess {
 public:
  // `environment`: NAME=VALUE, in addition to this process's own.
  explicit GradmonctlProcess(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment = {});
  ~GradmonctlProcess();
  GradmonctlProcess(const GradmonctlProcess&) = delete;
  GradmonctlProcess& operator=(const GradmonctlProcess&) = delete;

  pid_t pid() const { return pid_; }
  int wait();  // its exit code, 128 + signal where it was killed
  std::string out() const { return text_of(scratch_ / "out"); }
  std::string err() const { return text_of(scratch_ / "err"); }

 private:
  ScratchDirectory scratch_;
  pid_t pid_ = -1;
};

}  // namespace gradmon
