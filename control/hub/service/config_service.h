// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/config/config_file.h"
#include "control/host/mailbox.h"
#include "control/hub/service/disk_thread.h"
#include "control/hub/service/job_registry.h"

namespace gradmon {

// The config file for the hub's thread. File I/O is done on the disk thread; results come back through
// the mailbox. Lead hub only.
class ConfigService {
 public:
  using Content = tl::expected<FileContent, std::string>;
  using Edited = tl::expected<FileContent, EditError>;
  using Edits = ConfigFile::Edits;

  struct Place {
    std::filesystem::path config;
    std::filesystem::path output_dir;
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
