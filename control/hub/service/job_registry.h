// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "control/config/file_identity.h"
#include "control/files/descriptor.h"

namespace gradmon {

// Which jobs use one config file, or one output directory: a file beside it with a
// record of each. A record counts while its job's hub holds the lock on it (an OFD
// lock, which NFS knows too), and nobody else can end it. What a job writes into the
// config by itself stands in its record, so that the others do not take it for an edit
// of the user's. Who is last removes the file. Not to be relied on: where it cannot be
// made or locked, or belongs to another user, the jobs do not see each other.
// Does file I/O; one thread.
class JobRegistry {
 public:
  struct Job {
    std::string launch_id;
    std::string name;
    std::string host;
  };

  JobRegistry(std::filesystem::path file, Job own);
  ~JobRegistry();
  JobRegistry(const JobRegistry&) = delete;
  JobRegistry& operator=(const JobRegistry&) = delete;

  // Takes a place in the file, again where that has vanished. The other jobs that live,
  // as a name for people each.
  std::vector<std::string> look();
  // This job is about to write these bytes, and has written them: the identity is whole.
  void about_to_write(const std::string& sha256);
  void has_written(const FileIdentity& save);
  // The other job that has written it; none: the user, as far as can be told.
  std::optional<std::string> writer_of(const FileIdentity& save);

 private:
  struct Record {
    Job job;
    FileIdentity written;        // mtime 0: not known yet
    std::int64_t written_at = 0;  // wall time
  };

  bool take_place();
  bool is_there() const;
  void put_record();
  std::vector<Record> others() const;

  const std::filesystem::path file_;
  Descriptor fd_;
  std::int64_t place_ = -1;  // of this job's record; -1: none
  Record own_;
};

}  // namespace gradmon
