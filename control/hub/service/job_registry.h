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

// The jobs that use one config file or one output directory. A file beside it registers them, with one record
// for each job. A record counts while the job's hub holds a lock on it (an OFD lock, which NFS supports). A
// job notes its own writes into the config in its record, so that the other jobs do not take them for an edit
// by the user. The last job removes the file. Best effort: if the file cannot be made or locked, or belongs
// to another user, the jobs do not see each other. Does file I/O; one thread.
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

  // Registers this job, again if the file has vanished. Returns the other jobs that have a live rank, by
  // name.
  std::vector<std::string> refresh();
  // True: a rank of this job lives. The hub of an ended job keeps its record for a while, so that its last
  // write into the config is recognized as its own.
  enum class Ranks : std::uint8_t { live, gone };
  void note_ranks(Ranks ranks);
  // Call before this job writes bytes with this hash into the config, and after it with the save's identity.
  void about_to_write(const std::string& sha256);
  void has_written(const FileIdentity& save);
  // The other job that wrote this save, for people; nullopt: the user, or unknown.
  std::optional<std::string> writer_of(const FileIdentity& save);

 private:
  struct Record {
    Job job;
    FileIdentity written;         // mtime 0: unknown yet
    std::int64_t written_at = 0;  // wall time
    bool ended = false;           // no rank lives
  };

  bool lock_slot();
  bool is_there() const;
  void put_record();
  std::vector<Record> others() const;

  const std::filesystem::path file_;
  Descriptor fd_;
  std::int64_t slot_ = -1;  // of this job's record; -1: none
  Record own_;
};

}  // namespace gradmon
