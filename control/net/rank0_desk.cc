// SPDX-License-Identifier: Apache-2.0
#include "control/net/rank0_desk.h"

#include <utility>

#include "control/config/config_schema.h"
#include "control/log.h"
#include "control/net/history_file.h"
#include "control/net/plan_source.h"
#include "control/net/process_identity.h"

namespace gradmon {
namespace {

Coordinator::Job job_of(const AgentOptions& options, const JobIdentity& job, std::string process_id) {
  return {job.epoch,
          std::move(process_id),
          options.launcher_id,
          options.world_size,
          options.start_iteration,
          job.run_id,
          job.started,
          job.epoch};
}

Roster::Liveness liveness_of(const Hello& hello) {
  if (hello.host != host_name()) return Roster::Liveness::unknown;
  return process_lives(hello.pid, hello.process_start) ? Roster::Liveness::lives : Roster::Liveness::gone;
}

}  // namespace

Rank0Desk::Rank0Desk(const AgentOptions& options, JobIdentity job, std::string process_id, Door door)
    : options_(options),
      job_(std::move(job)),
      door_(std::move(door)),
      coordinator_(job_of(options_, job_, std::move(process_id)), liveness_of),
      strangers_(job_.epoch, options_.launcher_id),
      config_(options_.config_path, options_.output_dir, door_.disk, door_.mailbox) {}

void Rank0Desk::open() {
  if (options_.mode == Mode::static_once) {
    begun_ = true;
    perform(coordinator_.begin(nullptr, wall_now()));
    return;
  }
  config_.watch([this](ConfigDesk::Content content) { on_content(std::move(content)); });
}

void Rank0Desk::on_letter(const Letter& letter) {
  if (const auto stranger = strangers_.hear(letter, clock_)) log_warn(*stranger);
  perform(coordinator_.on_letter(letter, wall_now()));
}

void Rank0Desk::tick(Ticks elapsed) {
  clock_ += elapsed;
  perform(coordinator_.tick(elapsed, wall_now()));
  save_history();
}

void Rank0Desk::close() {
  perform(coordinator_.close());
  save_history();
}

void Rank0Desk::perform(CoordinatorActions actions) {
  for (const std::string& line : actions.log) log_info(line);
  for (const std::string& line : actions.warnings) log_warn(line);
  if (actions.write) {
    door_.homes.decide(coordinator_.home(), *actions.write, [this](const auto& held) {
      if (!held) note_error("register: " + held.error());
      perform(coordinator_.on_register(held, wall_now()));
    });
  }
  if (actions.write_back) write_back(*actions.write_back);
  for (ProbeResult& result : actions.probed) rehearsed(std::move(result));
  for (const Letter& letter : actions.send) door_.send(letter);
}

void Rank0Desk::on_content(ConfigDesk::Content content) {
  auto source = content ? plan_from_config(content->text, options_.config_path.string())
                        : tl::unexpected(options_.config_path.string() + ": " + content.error());
  if (!source) {
    broken_file_ = content ? source.error() : "";
    note_error(source.error());
    if (!std::exchange(begun_, true)) perform(coordinator_.begin(nullptr, wall_now()));
    return;
  }
  adopt(*content, std::move(*source));
}

void Rank0Desk::adopt(const FileContent& content, PlanSource source) {
  if (!first_config_) first_config_ = source.config;
  for (const std::string_view key : changed_fixed_keys(*first_config_, source.config)) {
    source.warnings.push_back("\"" + std::string(key) + "\" takes effect at the next start");
  }
  note_warnings(source.warnings);
  broken_file_.clear();
  adopted_text_ = content.text;
  adopted_sha256_ = source.plan->config_sha256;
  write_back_allowed_ = source.config.write_back;
  source.plan->file = content.identity;
  source.plan->by = options_.config_path.string();
  source.plan->cause = begun_ ? Cause::file : Cause::start;
  if (!std::exchange(begun_, true)) {
    perform(coordinator_.begin(source.plan->on ? PlanPtr(source.plan) : nullptr, wall_now()));
  } else if (source.plan->on || !coordinator_.newest_is_off()) {
    perform(coordinator_.propose(source.plan, wall_now()));
  }
}

void Rank0Desk::write_back(const WriteBack& due) {
  const Revision revision = due.revision;
  if (!write_back_allowed_) {
    coordinator_.write_back_ended(revision);
    return;
  }
  config_.write_back(due.file, [this, revision](ConfigDesk::Edited edited) {
    if (edited) {
      adopted_text_ = edited->text;
      adopted_sha256_ = edited->identity.sha256;
    } else if (edited.error().kind != EditError::Kind::changed) {
      note_error("dynamic_on could not be written back: " + edited.error().text);
    }
    coordinator_.write_back_ended(revision);
  });
}

Status Rank0Desk::status() const {
  Status own = door_.own_status();
  Status status = coordinator_.status();
  if (options_.mode == Mode::static_once) {
    own.ranks = std::move(status.ranks);
    status = own;
  } else if (!begun_) {
    status.reason = "starting";
  }
  status.mode = own.mode;
  status.torch = options_.torch;
  status.hooks = options_.hooks;
  status.config_path = options_.config_path.string();
  if (status.config_sha256.empty()) status.config_sha256 = adopted_sha256_;
  status.last_error = last_error_;
  status.warnings.insert(status.warnings.end(), warnings_.begin(), warnings_.end());
  status.warnings.insert(status.warnings.end(), own.warnings.begin(), own.warnings.end());
  for (std::string& stranger : strangers_.heard(clock_)) status.warnings.push_back(std::move(stranger));
  return status;
}

void Rank0Desk::note_error(std::string text) {
  log_error(text);
  const std::uint64_t count = last_error_ ? last_error_->count + 1 : 1;
  last_error_ = LastError{wall_now(), std::move(text), count};
}

void Rank0Desk::note_warnings(std::vector<std::string> warnings) {
  if (warnings != warnings_) {
    for (const std::string& warning : warnings) log_warn(warning);
  }
  warnings_ = std::move(warnings);
}

void Rank0Desk::save_history() {
  auto changed = coordinator_.journal().take_changed();
  if (changed.empty() || options_.mode == Mode::static_once) return;
  const auto file = options_.output_dir / ".gradmon" / job_.epoch / "history.jsonl";
  door_.disk.post([file, changed = std::move(changed)] {
    if (auto saved = append_history(file, changed); !saved) log_warn("history: " + saved.error());
  });
}

}  // namespace gradmon
