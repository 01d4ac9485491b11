// SPDX-License-Identifier: Apache-2.0
// The directory that the ranks, the hub and the clients of one job on one host
// share: {base}/{job}/. Base and job directory belong to this user and have mode
// 0700, and neither is a symbolic link. Whoever uses the directory checks that
// first. An error names the path, the mistake and the expected state. Any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/host/environment.h"

namespace gradmon {

// Where jobs may be, a value: taken once, when the Monitor is made.
struct JobBases {
  // $XDG_RUNTIME_DIR/gradmon where that variable is an absolute path of at most 48
  // bytes to a directory of this user's that others cannot write.
  std::optional<std::filesystem::path> runtime;
  std::filesystem::path shared;  // /dev/shm/gradmon-{uid}

  // Where a new job's directory is made.
  const std::filesystem::path& first() const { return runtime ? *runtime : shared; }
};
JobBases job_bases(const EnvironmentLookup& environment = process_environment);

struct JobDirectory {
  std::filesystem::path path;

  std::filesystem::path socket() const { return path / "hub.sock"; }
  std::filesystem::path lock() const { return path / "lock"; }
  std::filesystem::path decisions() const { return path / "decisions"; }
  std::filesystem::path keys() const { return path / "keys"; }
  std::filesystem::path log() const { return path / "hub.log"; }

  // Makes it, and its base, again where they have vanished.
  [[nodiscard]] tl::expected<void, std::string> make_again() const;
  // Whether base and directory are still as they must be.
  [[nodiscard]] tl::expected<void, std::string> check() const;
};

// A launch id as a file name of at most 40 bytes. A short one of letters, digits
// and . _ - stays as it is; any other becomes a readable beginning and 16 hex
// digits of its SHA-256.
std::string job_file_name(const std::string& launch_id);

// Makes the base and the directory where they are missing, and checks both.
[[nodiscard]] tl::expected<JobDirectory, std::string> make_job_directory(const std::string& launch_id,
                                                                         const JobBases& bases = job_bases());

struct FoundJobs {
  std::vector<JobDirectory> directories;  // in the order of their names, those of `runtime` first
  std::vector<std::string> refused;       // why, for each that did not pass the check
};
// All jobs of this user on this host; a base that is missing has none.
FoundJobs find_job_directories(const JobBases& bases = job_bases());

}  // namespace gradmon
