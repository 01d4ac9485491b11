// SPDX-License-Identifier: Apache-2.0
// The directory that the ranks, the hub and the clients of one job on one host
// share: {base}/{job}/. Base and job directory belong to this user and have mode
// 0700, and neither is a symbolic link. Every user of the directory checks this first. An error names
// the path, the mistake and the expected state. Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/aliases.h"
#include "control/files/descriptor.h"
#include "control/host/environment.h"

namespace gradmon {

// The directories that may hold job directories. A value, read once when the Monitor is constructed.
struct JobBases {
  // $XDG_RUNTIME_DIR/gradmon, if the variable is an absolute path of at most 48 bytes to a directory
  // that belongs to this user and is not writable by others.
  std::optional<fs::path> xdg_runtime;
  fs::path dev_shm;  // /dev/shm/gradmon-{uid}
  // /run/user/{uid}/gradmon, on the same conditions; unset if it is `xdg_runtime`. Search only.
  std::optional<fs::path> run_user = {};

  // The base in which a new job's directory is created.
  const fs::path& preferred() const { return xdg_runtime ? *xdg_runtime : dev_shm; }
  // Every base, the preferred one first.
  std::vector<fs::path> all() const;
};
JobBases job_bases(const EnvironmentLookup& environment = process_environment);

struct JobDirectory {
  fs::path path;

  fs::path socket() const { return path / "hub.sock"; }
  // Subscribers receive the alerts here. No longer than socket(), which must fit into a socket address.
  fs::path alerts() const { return path / "pub.sock"; }
  fs::path lock() const { return path / "lock"; }
  fs::path decisions() const { return path / "decisions"; }
  fs::path keys() const { return path / "keys"; }
  fs::path log() const { return path / "hub.log"; }

  // Creates the directory and its base if they are missing, and checks both.
  [[nodiscard]] Result<void> ensure() const;
  // Checks owner, mode and type of the base and the directory.
  [[nodiscard]] Result<void> check() const;
};

// Turns a launch id into a file name of at most 40 bytes. A launch id of at most 40 letters, digits and
// . _ - that does not start with . or - is returned unchanged. Any other becomes a readable prefix and
// 16 hex digits of its SHA-256.
std::string job_file_name(const std::string& launch_id);

// Creates the base and the directory if they are missing, and checks both. Uses `dev_shm` if the runtime
// directory itself is gone, as /run/user/{uid} is after a logout.
[[nodiscard]] Result<JobDirectory> make_job_directory(const std::string& launch_id,
                                                      const JobBases& bases = job_bases());

struct FoundJobs {
  std::vector<JobDirectory>
      directories;                   // those of the preferred base come first, each base's sorted by name
  std::vector<std::string> refused;  // one error for each directory that failed the check
};
// All job directories of this user on this host. A missing base is not an error.
FoundJobs find_job_directories(const JobBases& bases = job_bases());

// The lock that makes a hub the only one of its job on its host: flock(2) on {job}/lock. It is held
// until this object and its copies in forked children are destroyed or their processes end. The
// destructor keeps the file: removing a lock file would let two processes lock different files. One
// thread.
class HubLock {
 public:
  struct Failure {
    // taken: another process holds the lock. error: any other error.
    enum class Kind { taken, error };

    Kind kind = Kind::error;
    std::string reason;  // names the path
  };

  // Checks the directory first. Never waits for the lock.
  [[nodiscard]] static tl::expected<HubLock, Failure> acquire(const JobDirectory& directory);

  // True if the paths of the directory and of the lock file still name the files that this object holds open.
  // If not, call acquire() again; another hub may have taken the new lock already.
  bool is_at_its_path() const;

 private:
  HubLock(JobDirectory directory, Descriptor folder, Descriptor file);

  JobDirectory directory_;
  // Kept open so that no new file can reuse their inode numbers.
  Descriptor folder_;
  Descriptor file_;
};

// Removes everything older than `max_age` and all but the newest `max_count`, but nothing younger than
// `min_age`.
struct RetentionPolicy {
  std::chrono::hours max_age{7 * 24};
  std::size_t max_count = 100;
  // A job that has just been created may not be locked by its hub yet.
  std::chrono::seconds min_age{600};
};

// Removes the old job directories in all `bases`, except `own` and directories locked by a hub. Killed jobs
// leave them behind. Removes only files that a hub writes: a directory with other files stays. Does file I/O.
void remove_old_jobs(const JobDirectory& own, const JobBases& bases, const RetentionPolicy& policy = {});

// Removes old histories (history_file.h) from an output directory, except those of the epochs `running`: a
// job writes its history only when something changes. Does file I/O.
void remove_old_histories(const fs::path& output_dir, const std::set<std::string>& running,
                          const RetentionPolicy& policy = {});

}  // namespace gradmon
