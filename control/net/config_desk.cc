// SPDX-License-Identifier: Apache-2.0
#include "control/net/config_desk.h"

#include <exception>

#include "control/log.h"
#include "control/net/plan_source.h"
#include "control/net/write_back_note.h"

namespace gradmon {

struct ConfigDesk::OnDisk {
  const std::filesystem::path path;
  const WriteBackNote note;
  // The disk thread's watch alone keeps it, and ends it there: that is file I/O.
  std::weak_ptr<ConfigFile> watched;
  bool recovered = false;  // nothing is left of an earlier job's write-back

  Edited edit(const Edits& edits, const std::optional<FileIdentity>& based_on) try {
    const auto check = [&](std::string_view text) {
      const auto source = plan_from_config(std::string(text), path.string());
      return source ? std::string() : source.error();
    };
    const auto file = watched.lock();
    if (!file) return tl::unexpected(EditError{EditError::Kind::unwritable, "it is not watched"});
    return file->edit(edits, based_on, check);
  } catch (const std::exception& error) {
    return tl::unexpected(EditError{EditError::Kind::unwritable, error.what()});
  }

  Edited write_back(const FileIdentity& save) {
    if (auto left = note.leave(save); !left) log_debug("no note of the write-back: " + left.error());
    auto edited = edit({{"dynamic_on", "false"}}, save);
    note.remove();
    return edited;
  }

  std::optional<Content> look(ConfigFile& file) {
    auto content = file.poll();
    if (recovered || !content || !*content) return content;
    recovered = true;
    const auto due = note.read();
    if (!due) return content;
    if (*due != (*content)->identity) {
      note.remove();
      return content;
    }
    auto edited = write_back(*due);
    if (!edited) return content;
    log_info("an earlier job has ended its collecting: dynamic_on is written back now");
    return std::move(*edited);
  }
};

ConfigDesk::ConfigDesk(std::filesystem::path path, const std::filesystem::path& output_dir, DiskThread& disk,
                       std::shared_ptr<Mailbox> mailbox)
    : disk_(disk),
      mailbox_(std::move(mailbox)),
      file_(new OnDisk{path, WriteBackNote(output_dir, path), {}}) {}

void ConfigDesk::watch(std::function<void(Content)> on_content) {
  disk_.watch([on_disk = file_, mailbox = mailbox_, on_content = std::move(on_content)] {
    const auto file = std::make_shared<ConfigFile>(on_disk->path);
    on_disk->watched = file;
    DiskThread::Watch watch;
    watch.fd = [file] { return file->event_fd(); };
    watch.patience = [file] { return file->next_poll(); };
    watch.look = [on_disk, file, mailbox, on_content] {
      while (auto content = on_disk->look(*file)) {
        mailbox->post(
            [on_content, content = std::move(*content)]() mutable { on_content(std::move(content)); });
      }
    };
    return watch;
  });
}

void ConfigDesk::edit(Edits edits, std::function<void(Edited)> done) {
  disk_.post([file = file_, mailbox = mailbox_, edits = std::move(edits), done = std::move(done)] {
    mailbox->post([done, edited = file->edit(edits, {})]() mutable { done(std::move(edited)); });
  });
}

void ConfigDesk::write_back(FileIdentity save, std::function<void(Edited)> done) {
  disk_.post([file = file_, mailbox = mailbox_, save = std::move(save), done = std::move(done)] {
    mailbox->post([done, edited = file->write_back(save)]() mutable { done(std::move(edited)); });
  });
}

}  // namespace gradmon
