// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/aliases.h"
#include "control/config/config_file.h"
#include "control/config/file_content.h"
#include "control/files/descriptor.h"
#include "control/host/mailbox.h"
#include "control/hub/disk_thread.h"

namespace gradmon {

// `$OUT/.gradmon/writeback.json`: `dynamic_on: false` must be written into one save of the config file.
// The note exists from before the write-back until it has ended, so that the next job can finish a
// write-back that was killed. Does file I/O; one thread.
class WriteBackNote {
 public:
  WriteBackNote(const fs::path& output_dir, const fs::path& config_path);

  // Durable when it returns. Replaces another note; keeps a note of this save unchanged.
  Result<void> write(const FileIdentity& save) const;
  // The save of the note; none: no note exists that rendezvous.h would trust, or it is for another config
  // file.
  std::optional<FileIdentity> read() const;
  void remove() const;

 private:
  const fs::path note_;
  const fs::path config_path_;  // absolute
};

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

  JobRegistry(fs::path file, Job own);
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
  std::optional<std::string> find_writer(const FileIdentity& save);

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

  const fs::path file_;
  Descriptor fd_;
  std::int64_t slot_ = -1;  // of this job's record; -1: none
  Record own_;
};

// The config file for the hub's thread. File I/O is done on the disk thread; results come back through
// the mailbox. Lead hub only.
class ConfigService {
 public:
  using Content = Result<FileContent>;
  using Edited = tl::expected<FileContent, EditError>;
  using Edits = ConfigFile::Edits;

  struct Place {
    fs::path config;
    fs::path output_dir;
    JobRegistry::Job own;
  };
  struct Watcher {
    // Called with each save, whole, or with the reason why none exists. `writer`: the other job that wrote
    // it, for people; "" for a save by the user.
    std::function<void(Content, const std::string& writer)> on_content;
    // Called when the list of other jobs with this config changes, or ConfigFile::superseded_saves().
    std::function<void(std::vector<std::string> other_jobs, std::vector<std::string> superseded)> on_notices;
  };

  ConfigService(const Place& place, DiskThread& disk, std::shared_ptr<Mailbox> mailbox);

  // First finishes a write-back that an earlier job left, then reports the first save. The disk thread
  // owns the file until that thread ends.
  void watch(Watcher watcher);
  // Informs the other jobs with this config.
  void note_ranks(JobRegistry::Ranks ranks);
  // Edits the current content (ConfigFile::edit) and validates the result before it is written. Always
  // calls `done`. Refused before watch().
  void edit(Edits edits, std::function<void(Edited)> done);
  // Sets `dynamic_on` to false if the file still is `save`. Keeps a note on disk until then.
  void write_back(FileIdentity save, std::function<void(Edited)> done);

 private:
  struct OnDisk;

  DiskThread& disk_;
  const std::shared_ptr<Mailbox> mailbox_;
  // Used by the disk thread only; shared, because that thread may outlive this object.
  const std::shared_ptr<OnDisk> file_;
};

}  // namespace gradmon
