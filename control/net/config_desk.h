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
#include "control/net/disk_thread.h"
#include "control/net/mailbox.h"

namespace gradmon {

// The config file as the agent thread sees it: the file work is done on the
// disk thread, the answers come back through the mailbox. Rank 0 only.
class ConfigDesk {
 public:
  using Content = tl::expected<FileContent, std::string>;
  using Edited = tl::expected<FileContent, EditError>;
  using Edits = ConfigFile::Edits;

  ConfigDesk(std::filesystem::path path, const std::filesystem::path& output_dir, DiskThread& disk,
             std::shared_ptr<Mailbox> mailbox);

  // `on_content` gets each save, whole, or why there is none; the first soon. A
  // write-back that an earlier job could not finish is made up for before that.
  // The file is the disk thread's until that ends: it lets go of it, not this object.
  void watch(std::function<void(Content)> on_content);
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
