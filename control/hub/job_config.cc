// SPDX-License-Identifier: Apache-2.0
// The config file of a job (ConfigRole).
#include <algorithm>
#include <utility>

#include "control/config/config_schema.h"
#include "control/host/history_file.h"
#include "control/hub/job_service.h"

namespace gradmon {
namespace {

constexpr Ticks kFirstWriteBackPause{2'000};  // before a failed write-back is retried; then doubled
constexpr Ticks kMaxWriteBackPause{60'000};

}  // namespace

ConfigRole::ConfigRole(JobState& state)
    : state_(state),
      file_({state_.job.lead.config_path, state_.job.output_dir, state_.job.registered()},
            state_.resources.config_disk, state_.resources.mailbox),
      place_("config " + state_.job.lead.config_path, state_.resources.config_disk) {}

void ConfigRole::open() {
  if (!state_.job.lead.dynamic) {
    begin(nullptr);
    return watch_static_config();
  }
  file_.watch({[this](ConfigService::Content content, const std::string& writer) {
                 on_content(std::move(content), writer);
               },
               [this](std::vector<std::string> others, std::vector<std::string> superseded) {
                 place_.used_by(std::move(others));
                 place_.notes(std::move(superseded));
               }});
}

// Begins the epoch, once.
void ConfigRole::begin(PlanPtr plan) {
  if (!std::exchange(state_.begun, true))
    state_.actions += state_.coordinator.begin(std::move(plan), wall_now());
}

// Static mode writes nothing into the config, so it makes no JobRegistry beside the file.
void ConfigRole::watch_static_config() {
  state_.resources.config_disk.watch([this, mailbox = state_.resources.mailbox, lead = state_.job.lead] {
    const auto file = std::make_shared<ConfigFile>(lead.config_path);
    return DiskThread::Watch{[file] { return file->event_fd(); }, [file] { return file->next_poll(); },
                             [this, mailbox, file, read = lead.static_text] {
                               while (const auto content = file->poll()) {
                                 if (*content && (*content)->text != read)
                                   mailbox->post([this] { log_static_mode(); });
                               }
                             }};
  });
}

void ConfigRole::log_static_mode() {
  if (!std::exchange(static_mode_logged_, true))
    state_.tell(LogLevel::warn, "static mode: edits are not read; start with DYNAMIC_MONITOR=True");
}

void ConfigRole::on_content(ConfigService::Content content, const std::string& writer) {
  if (!writer.empty() && (state_.begun || state_.restored)) return ignore_save_by(writer, *content);
  auto source = content ? state_.read_plan(*content)
                        : tl::unexpected(state_.job.lead.config_path + ": " + content.error());
  if (!source) {
    state_.broken_file = content ? source.error() : "";
    state_.note_error(JobState::ErrorSource::content, source.error());
    HistoryEntry entry;
    entry.cause = name_of(state_.begun ? Cause::file : Cause::start);
    entry.by = state_.job.lead.config_path;
    // A file that never existed is no edit.
    if (content || state_.begun) state_.add_refused(std::move(entry), source.error());
    return begin(nullptr);
  }
  adopt(*content, std::move(*source));
}

// A save by another job (at its end, or for a command to it) does not concern this job.
void ConfigRole::ignore_save_by(const std::string& writer, const FileContent& content) {
  state_.tell(LogLevel::info,
              state_.job.lead.config_path + " was written by " + writer + ", not by the user: ignored");
  state_.take_config(content.text, content.identity.sha256);
  state_.clear_error(JobState::ErrorSource::content);
  write_back_is_over();
  begin(nullptr);
}

void ConfigRole::write_back_is_over() {
  pending_write_back_.reset();
  write_back_pause_ = {};
  state_.clear_error(JobState::ErrorSource::write_back);
}

void ConfigRole::adopt(const FileContent& content, PlanSource source) {
  if (!first_config_) first_config_ = source.config();
  for (const std::string_view key : changed_restart_keys(*first_config_, source.config())) {
    source.warnings.push_back("\"" + std::string(key) + "\" takes effect at the next start");
  }
  state_.note_warnings(source.warnings);
  state_.broken_file.clear();
  state_.clear_error(JobState::ErrorSource::content);
  state_.take_config(content.text, source.plan->config_sha256);
  state_.write_back_allowed = source.config().write_back;
  source.plan->file = content.identity;
  source.plan->by = state_.job.lead.config_path;
  source.plan->cause = state_.begun ? Cause::file : Cause::start;
  if (pending_write_back_ && pending_write_back_->file != content.identity)
    write_back_is_over();  // It was due for the earlier save only.
  if (!state_.begun) {
    if (!source.plan->on && !state_.restored) explain_off();
    begin(source.plan);
  } else if (source.plan->on || !state_.coordinator.newest_is_off()) {
    state_.actions += state_.coordinator.propose(source.plan, wall_now());
  } else {
    state_.coordinator.forget_refusal();
  }
}

// Explains an off: if the newest change in the history of this output directory has ended by itself, that job
// wrote the file back.
void ConfigRole::explain_off() {
  state_.resources.run_disk.post([this, directory = std::filesystem::path(state_.job.output_dir),
                                  mailbox = state_.resources.mailbox] {
    std::int64_t last = -1;
    for (const HistoryEntry& entry : history_from_files(directory).value_or(std::vector<HistoryEntry>())) {
      if (entry.verdict == "commit") last = entry.on ? entry.finished_step : -1;
    }
    mailbox->post([this, last] {
      if (last >= 0)
        off_since_ =
            "dynamic_on is false: an earlier job wrote it back when its collection ended with step " +
            std::to_string(last);
      state_.tell(LogLevel::info, "off: " + (last < 0 ? "dynamic_on is false" : off_since_) + " (true in " +
                                      state_.job.lead.config_path + ", or gradmonctl on, starts collecting)");
    });
  });
}

void ConfigRole::write_back(WriteBack due) {
  pending_write_back_.reset();
  if (!state_.write_back_allowed) return state_.coordinator.write_back_ended(due.revision);
  const bool first = write_back_pause_ == Ticks{};
  write_back_pause_ = std::clamp(2 * write_back_pause_, kFirstWriteBackPause, kMaxWriteBackPause);
  next_write_back_ = state_.clock + write_back_pause_;
  file_.write_back(due.file, [this, due, first](ConfigService::Edited edited) {
    if (edited) {
      state_.take_config(edited->text, edited->identity.sha256);
    } else if (edited.error().kind != EditError::Kind::changed) {
      const std::string text = "dynamic_on could not be written back: " + edited.error().text;
      if (first) state_.note_error(JobState::ErrorSource::write_back, text);
      pending_write_back_ = due;  // Retried until it succeeds or the file has another save.
    }
    if (!pending_write_back_) write_back_is_over();
    state_.coordinator.write_back_ended(due.revision);
  });
}

void ConfigRole::tick() {
  if (pending_write_back_ && state_.clock >= next_write_back_) write_back(*pending_write_back_);
}

}  // namespace gradmon
