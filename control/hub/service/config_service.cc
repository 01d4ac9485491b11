// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/config_service.h"

#include <chrono>
#include <exception>

#include "control/config/file_content.h"
#include "control/hub/service/write_back_note.h"
#include "control/log.h"
#include "control/wire/plan_source.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLookForJobsEvery{2};

fs::path jobs_file_of(const fs::path& config) {
  std::error_code error;
  const fs::path resolved = fs::canonical(config, error);
  const fs::path& target = error ? config : resolved;
  return target.parent_path() / ("." + target.filename().string() + ".gradmon-jobs");
}

}  // namespace

struct ConfigService::OnDisk {
  // Open while the config is watched.
  struct Watched {
    using Clock = std::chrono::steady_clock;

    Watched(const fs::path& path, const fs::path& spare, const JobRegistry::Job& own)
        : file(path, &Clock::now, spare), jobs(jobs_file_of(path), own) {}

    ConfigFile file;
    JobRegistry jobs;
    Clock::time_point next_look{};
    std::vector<std::string> others;
    std::vector<std::string> superseded;
  };

  const fs::path path;
  const fs::path spare;  // for side files that the directory of the config refuses
  const JobRegistry::Job own;
  const WriteBackNote note;
  // Owned by the watch of the disk thread, so that its destructor, which does file I/O, runs there.
  std::weak_ptr<Watched> watched = {};
  bool recovered = false;  // an earlier job's write-back is finished

  Edited edit(const Edits& edits, const std::optional<FileIdentity>& based_on) try {
    const auto open = watched.lock();
    if (!open) return tl::unexpected(EditError{EditError::Kind::unwritable, "it is not watched"});
    const auto check = [&](std::string_view text) {
      const auto source = plan_from_config(std::string(text), path.string());
      if (source) open->jobs.about_to_write(sha256_of(text));
      return source ? std::string() : source.error();
    };
    auto edited = open->file.edit(edits, based_on, check);
    if (edited) open->jobs.has_written(edited->identity);
    return edited;
  } catch (const std::exception& error) {
    return tl::unexpected(EditError{EditError::Kind::unwritable, error.what()});
  }

  Edited write_back(const FileIdentity& save) {
    if (auto left = note.write(save); !left) log_debug("no note of the write-back: " + left.error());
    auto edited = edit({{"dynamic_on", "false"}}, save);
    // If the file could not be written, the write-back is still due: the note stays for the next job.
    if (edited || edited.error().kind == EditError::Kind::changed) note.remove();
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
    if (!edited) {
      note.remove();
      return content;
    }
    log_info("writing back dynamic_on for an earlier job that has finished");
    return std::move(*edited);
  }
};

ConfigService::ConfigService(const Place& place, DiskThread& disk, std::shared_ptr<Mailbox> mailbox)
    : disk_(disk),
      mailbox_(std::move(mailbox)),
      file_(new OnDisk{place.config, place.output_dir / ".gradmon", place.own,
                       WriteBackNote(place.output_dir, place.config)}) {}

void ConfigService::watch(Watcher watcher) {
  disk_.watch([on_disk = file_, mailbox = mailbox_, watcher = std::move(watcher)] {
    const auto open = std::make_shared<OnDisk::Watched>(on_disk->path, on_disk->spare, on_disk->own);
    on_disk->watched = open;
    DiskThread::Watch watch;
    watch.fd = [open] { return open->file.event_fd(); };
    watch.timeout = [open] { return open->file.next_poll(); };
    watch.on_event = [on_disk, open, mailbox, watcher] {
      while (auto content = on_disk->look(open->file)) {
        const auto writer = *content ? open->jobs.writer_of((*content)->identity) : std::nullopt;
        mailbox->post([watcher, content = std::move(*content), writer = writer.value_or("")]() mutable {
          watcher.on_content(std::move(content), writer);
        });
      }
      const auto now = OnDisk::Watched::Clock::now();
      if (now < open->next_look) return;
      open->next_look = now + kLookForJobsEvery;
      auto others = open->jobs.refresh();
      auto superseded = open->file.superseded_saves();
      if (others == open->others && superseded == open->superseded) return;
      open->others = others;
      open->superseded = superseded;
      mailbox->post([watcher, others, superseded] { watcher.on_notices(others, superseded); });
    };
    return watch;
  });
}

void ConfigService::note_ranks(JobRegistry::Ranks ranks) {
  disk_.post([file = file_, ranks] {
    if (const auto open = file->watched.lock()) open->jobs.note_ranks(ranks);
  });
}

void ConfigService::edit(Edits edits, std::function<void(Edited)> done) {
  disk_.post([file = file_, mailbox = mailbox_, edits = std::move(edits), done = std::move(done)] {
    mailbox->post([done, edited = file->edit(edits, {})]() mutable { done(std::move(edited)); });
  });
}

void ConfigService::write_back(FileIdentity save, std::function<void(Edited)> done) {
  disk_.post([file = file_, mailbox = mailbox_, save = std::move(save), done = std::move(done)] {
    mailbox->post([done, edited = file->write_back(save)]() mutable { done(std::move(edited)); });
  });
}

}  // namespace gradmon
