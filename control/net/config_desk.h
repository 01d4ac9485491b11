// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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

  ConfigDesk(std::filesystem::path path, DiskThread& disk, std::shared_ptr<Mailbox> mailbox);

  // `on_content` gets each save, whole, or why there is none; the first soon.
  void watch(std::function<void(Content)> on_content);
  // ConfigFile::edit, with validation of what would be written.
  void edit(Edits edits, std::optional<FileIdentity> based_on, std::function<void(Edited)> done);

 private:
  const std::filesystem::path path_;
  DiskThread& disk_;
  const std::shared_ptr<Mailbox> mailbox_;
  // The disk thread's own; shared because that thread may outlive this object.
  const std::shared_ptr<std::unique_ptr<ConfigFile>> file_;
};

}  // namespace gradmon
