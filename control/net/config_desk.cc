// SPDX-License-Identifier: Apache-2.0
#include "control/net/config_desk.h"

#include "control/net/plan_source.h"

namespace gradmon {

ConfigDesk::ConfigDesk(std::filesystem::path path, DiskThread& disk, std::shared_ptr<Mailbox> mailbox)
    : path_(std::move(path)),
      disk_(disk),
      mailbox_(std::move(mailbox)),
      file_(std::make_shared<std::unique_ptr<ConfigFile>>()) {}

void ConfigDesk::watch(std::function<void(Content)> on_content) {
  disk_.watch([path = path_, file = file_, mailbox = mailbox_, on_content = std::move(on_content)] {
    *file = std::make_unique<ConfigFile>(path);
    DiskThread::Watch watch;
    watch.fd = [file] { return (*file)->event_fd(); };
    watch.patience = [file] { return (*file)->next_poll(); };
    watch.look = [file, mailbox, on_content] {
      while (auto content = (*file)->poll()) {
        mailbox->post(
            [on_content, content = std::move(*content)]() mutable { on_content(std::move(content)); });
      }
    };
    return watch;
  });
}

void ConfigDesk::edit(Edits edits, std::optional<FileIdentity> based_on, std::function<void(Edited)> done) {
  disk_.post([file = file_, mailbox = mailbox_, name = path_.string(), edits = std::move(edits),
              based_on = std::move(based_on), done = std::move(done)] {
    const auto check = [&](std::string_view text) {
      const auto source = plan_from_config(std::string(text), name);
      return source ? std::string() : source.error();
    };
    auto edited = (*file)->edit(edits, based_on, check);
    mailbox->post([done, edited = std::move(edited)]() mutable { done(std::move(edited)); });
  });
}

}  // namespace gradmon
