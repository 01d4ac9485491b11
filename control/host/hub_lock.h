// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "control/files/descriptor.h"
#include "control/host/job_directory.h"

namespace gradmon {

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

}  // namespace gradmon
