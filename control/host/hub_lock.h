// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "control/files/descriptor.h"
#include "control/host/job_directory.h"

namespace gradmon {

// The lock that makes a hub the only one of its job on its host: flock(2) on
// {job}/lock. It lasts while this object lives, also in a forked child that keeps
// it, and ends with the process. The file stays: removing a lock file lets two
// processes each lock their own. One thread.
class HubLock {
 public:
  struct Failure {
    // taken: another process holds the lock. cannot: anything else.
    enum class Kind { taken, cannot };

    Kind kind = Kind::cannot;
    std::string reason;  // names the path
  };

  // Checks the directory first. Never waits for another's lock.
  [[nodiscard]] static tl::expected<HubLock, Failure> take(const JobDirectory& directory);

  // Whether the paths of the directory and of the lock still name the files that
  // this object holds. If not, take() a new one: another hub may have done so.
  bool is_held() const;

 private:
  HubLock(JobDirectory directory, Descriptor folder, Descriptor file);

  JobDirectory directory_;
  // Open, so that no new file can get their inode numbers.
  Descriptor folder_;
  Descriptor file_;
};

}  // namespace gradmon
