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

// The config file as the hub's thread sees it: the file work is done on the disk
// thread, the answers come back through the mailbox. The lead hub only.
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
    // Each save, whole, or why there is none; the first soon. `writer`: the other job
    // that has written it by itself, for people; "" for a save of the user's.
    std::function<void(Content, const std::string& writer)> on_content;
    // The other jobs with this config, where that has changed.
    std::function<void(std::vector<std::string>)> on_other_jobs;
  };

  ConfigService(const Place& place, DiskThread& disk, std::shared_ptr<Mailbox> mailbox);

  // A write-back that an earlier job could not finish is made up for before the first
  // save is told. The file is the disk thread's until that ends: it lets go of it, not
  // this object.
  void watch(Watcher watcher);
  // ConfigFile::edit of whatever is there, with validation of what would be
  // written. `done` is called in any case. Refused before watch().
  void edit(Edits edits, std::function<void(Edited)> done);
  // Makes `dynamic_on` false where the file still is `save`, and leaves a note
  // while that is due.
  void write_back(FileIdentity save, std::function<void(Edited)> done);

 private:
  struct OnDisk;

  DiskThread& disk_;
  const std::shared_ptr<Mailbox> mailbox_;
  // The disk thread's own; shared because that thread may outlive this object.
  const std::shared_ptr<OnDisk> file_;
};

}  // namespace gradmon
