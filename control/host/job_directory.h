// SPDX-License-Identifier: Apache-2.0
// The directory that the ranks, the hub and the clients of one job on one host
// share: {base}/{job}/. Base and job directory belong to this user and have mode
// 0700, and neither is a symbolic link. Every user of the directory checks this first. An error names
// the path, the mistake and the expected state. Any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/host/environment.h"

namespace gradmon {

// The directories that may hold job directories. A value, read once when the Monitor is constructed.
struct JobBases {
  // $XDG_RUNTIME_DIR/gradmon, if the variable is an absolute path of at most 48 bytes to a directory
  // that belongs to this user and is not writable by others.
  std::optional<std::filesystem::path> xdg_runtime;
  std::filesystem::path dev_shm;  // /dev/shm/gradmon-{uid}
  // /run/user/{uid}/gradmon, on the same conditions; unset if it is `xdg_runtime`. Search only.
  std::optional<std::filesystem::path> run_user = {};

  // The base in which a new job's directory is created.
  const std::filesystem::path& preferred() const { return xdg_runtime ? *xdg_runtime : dev_shm; }
  // Every base, the preferred one first.
  std::vector<std::filesystem::path> all() const;
};
JobBases job_bases(const EnvironmentLookup& environment = process_environment);

struct JobDirectory {
  std::filesystem::path path;

  std::filesystem::path socket() const { return path / "hub.sock"; }
  // Subscribers receive the alerts here. No longer than socket(), which must fit into a socket address.
  std::filesystem::path alerts() const { return path / "pub.sock"; }
  std::filesystem::path lock() const { return path / "lock"; }
  std::filesystem::path decisions() const { return path / "decisions"; }
  std::filesystem::path keys() const { return path / "keys"; }
  std::filesystem::path log() const { return path / "hub.log"; }

  // Creates the directory and its base if they are missing, and checks both.
  [[nodiscard]] tl::expected<void, std::string> ensure() const;
  // Checks owner, mode and type of the base and the directory.
  [[nodiscard]] tl::expected<void, std::string> check() const;
};

// Turns a launch id into a file name of at most 40 bytes. A launch id of at most 40 letters, digits and
// . _ - that does not start with . or - is returned unchanged. Any other becomes a readable prefix and
// 16 hex digits of its SHA-256.
std::string job_file_name(const std::string& launch_id);

// Creates the base and the directory if they are missing, and checks both. Uses `dev_shm` if the runtime
// directory itself is gone, as /run/user/{uid} is after a logout.
[[nodiscard]] tl::expected<JobDirectory, std::string> make_job_directory(const std::string& launch_id,
                                                                         const JobBases& bases = job_bases());

struct FoundJobs {
  std::vector<JobDirectory>
      directories;                   // those of the preferred base come first, each base's sorted by name
  std::vector<std::string> refused;  // one error for each directory that failed the check
};
// All job directories of this user on this host. A missing base is not an error.
FoundJobs find_job_directories(const JobBases& bases = job_bases());

}  // namespace gradmon
