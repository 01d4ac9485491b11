// SPDX-License-Identifier: Apache-2.0
// Rank0Desk: what gradmonctl asks for. A commanded state is a set, never a
// flip; the same request id is answered again and changes nothing.
#include <algorithm>
#include <utility>

#include "control/config/json_edit.h"
#include "control/log.h"
#include "control/net/messages.h"
#include "control/net/plan_source.h"
#include "control/net/process_identity.h"
#include "control/net/rank0_desk.h"

namespace gradmon {
namespace {

constexpr std::size_t kAnswersKept = 1000;
constexpr std::size_t kMostRehearsals = 16;
constexpr std::size_t kMostTargetBytes = kMostBytesDown / 3;  // of rank 0, and of all others

CommandReply failed(CommandOutcome outcome, std::string message) {
  CommandReply reply;
  reply.outcome = outcome;
  reply.message = std::move(message);
  return reply;
}

CommandReply nothing_to_change(std::string message) {
  CommandReply reply;
  reply.message = std::move(message);
  reply.settled = true;
  reply.applied_by_all = true;
  return reply;
}

ConfigDesk::Edits edits_of(const Command& command) {
  ConfigDesk::Edits edits = command.edits;
  if (command.verb != CommandVerb::on && command.verb != CommandVerb::off) return edits;
  edits.emplace_back("dynamic_on", command.verb == CommandVerb::on ? "true" : "false");
  if (command.collect_times) edits.emplace_back("collect_times", std::to_string(*command.collect_times));
  if (command.step_interval) edits.emplace_back("step_interval", std::to_string(*command.step_interval));
  return edits;
}

CommandReply refused_in_static_mode() {
  return failed(CommandOutcome::failed,
                "static mode: the config is read once, at the start; "
                "DYNAMIC_MONITOR=True makes it changeable");
}

tl::expected<std::string, std::string> with_edits(std::string text, const ConfigDesk::Edits& edits) {
  for (const auto& [key, value] : edits) {
    auto edited = set_value(text, to_pointer(key), value);
    if (!edited) return edited;
    text = std::move(*edited);
  }
  return text;
}

}  // namespace

void Rank0Desk::on_command(const std::string& peer, const Command& command) {
  CommandReply reply;
  switch (command.verb) {
    case CommandVerb::status:
      reply.status = status();
      return door_.reply(peer, command, reply);
    case CommandVerb::history:
      reply.history = newest_history();
      return door_.reply(peer, command, reply);
    case CommandVerb::verdict:
      return door_.reply(peer, command, verdict_on(command.request_id));
    case CommandVerb::config:
      return door_.reply(peer, command, config_in_force());
    case CommandVerb::rehearse:
    case CommandVerb::foresee:
      return rehearse(peer, command);
    case CommandVerb::targets:
      return list_targets(peer, command);
    case CommandVerb::on:
    case CommandVerb::off:
    case CommandVerb::set:
      break;
  }
  if (const auto known = answered_.find(command.request_id); known != answered_.end()) {
    return door_.reply(peer, command, known->second);
  }
  if (running_.count(command.request_id) == 0) change(peer, command);
}

// As much of it as one message holds.
std::vector<HistoryEntry> Rank0Desk::newest_history() const {
  const std::size_t entry_bytes = 500 + 16 * static_cast<std::size_t>(options_.world_size);
  const std::size_t most = std::max<std::size_t>(1, kMostBytesDown / entry_bytes);
  std::vector<HistoryEntry> entries = coordinator_.journal().entries();
  if (entries.size() > most)
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(most));
  return entries;
}

// While nothing is collected: the newest valid file, which the next switch takes.
CommandReply Rank0Desk::config_in_force() const {
  CommandReply reply;
  reply.status = status();
  const bool runs = reply.status->state == "on" || options_.mode == Mode::static_once;
  reply.config_text = runs ? door_.text_in_force() : adopted_text_;
  if (!reply.config_text.empty()) return reply;
  const std::string why = last_error_ ? ": " + last_error_->text : "";
  return failed(CommandOutcome::failed, "the job has no valid config yet" + why);
}

void Rank0Desk::list_targets(const std::string& peer, const Command& command) {
  if (!begun_) return;  // The client asks again.
  CommandReply reply;
  reply.status = status();
  reply.status->ranks.clear();
  ask_ranks(peer, command, std::move(reply), nullptr);
}

// The answer comes to rehearsed().
void Rank0Desk::ask_ranks(const std::string& peer, const Command& command, CommandReply reply, PlanPtr plan) {
  if (rehearsals_.size() >= kMostRehearsals) rehearsals_.erase(rehearsals_.begin());
  rehearsals_[command.request_id] = {peer, command, std::move(reply)};
  perform(coordinator_.probe(command.request_id, std::move(plan)));
}

// What `set` would do: nothing is written, proposed or remembered.
void Rank0Desk::rehearse(const std::string& peer, const Command& command) {
  if (options_.mode == Mode::static_once) return door_.reply(peer, command, refused_in_static_mode());
  if (!begun_) return;  // The client asks again.
  const auto invalid = [&](const std::string& why) {
    door_.reply(peer, command, failed(CommandOutcome::invalid_config, why));
  };
  if (!broken_file_.empty() && command.config_text.empty()) return invalid(broken_file_);
  CommandReply reply;
  reply.config_before = adopted_text_.empty() ? "{}" : adopted_text_;
  if (!command.config_text.empty()) reply.config_before = command.config_text;
  auto edited = with_edits(reply.config_before, edits_of(command));
  if (!edited) return invalid(edited.error());
  auto source = plan_from_config(*edited, options_.config_path.string());
  if (!source) return invalid(source.error());
  reply.config_text = std::move(*edited);
  reply.status = Status{};
  reply.status->config_path = options_.config_path.string();
  reply.status->state = source->plan->on ? "on" : "off";
  reply.status->warnings = std::move(source->warnings);
  source->plan->on = true;  // What would match is worth knowing before it is switched on.
  ask_ranks(peer, command, std::move(reply), source->plan);
}

void Rank0Desk::rehearsed(ProbeResult result) {
  const auto found = rehearsals_.find(result.id);
  if (found == rehearsals_.end()) return;
  Rehearsal rehearsal = std::move(found->second);
  rehearsals_.erase(found);
  // One message has room for the texts, or for as much of the targets, and for as much of this.
  const bool texts = rehearsal.command.verb == CommandVerb::rehearse;
  if (!texts) rehearsal.reply.config_before.clear();
  if (!texts) rehearsal.reply.config_text.clear();
  std::size_t objections = 0;
  for (ProbeResult::Answer& answer : result.answers) {
    const std::size_t room = kMostTargetBytes / (answer.rank.value == 0 ? 1 : result.answers.size());
    answer.targets = texts ? TargetList{} : within(std::move(answer.targets), room);
    if (answer.objection.empty()) continue;
    answer.objection.resize(std::min<std::size_t>(answer.objection.size(), objections++ < 20 ? 500 : 1));
  }
  rehearsal.reply.probed = std::move(result.answers);
  door_.reply(rehearsal.peer, rehearsal.command, rehearsal.reply);
}

void Rank0Desk::change(const std::string& peer, const Command& command) {
  if (options_.mode == Mode::static_once) return answer(peer, command, refused_in_static_mode());
  if (!begun_) return;  // The client asks again.
  // One that is on its way to the file may be an `on`.
  if (command.verb == CommandVerb::off && running_.empty() && coordinator_.newest_is_off()) {
    return answer(peer, command, nothing_to_change("already off"));
  }
  if (!write_back_allowed_) return change_without_file(peer, command, "write_back is false");
  running_.insert(command.request_id);
  config_.edit(edits_of(command), [this, peer, command](ConfigDesk::Edited edited) {
    running_.erase(command.request_id);
    changed(peer, command, std::move(edited));
  });
}

void Rank0Desk::changed(const std::string& peer, const Command& command, ConfigDesk::Edited edited) {
  if (!edited) {
    const EditError& error = edited.error();
    if (error.kind == EditError::Kind::invalid) {
      return answer(peer, command, failed(CommandOutcome::invalid_config, error.text));
    }
    return change_without_file(peer, command, error.text);
  }
  auto source = plan_from_config(edited->text, options_.config_path.string());
  if (!source) return answer(peer, command, failed(CommandOutcome::invalid_config, source.error()));
  broken_file_.clear();
  adopted_text_ = edited->text;
  adopted_sha256_ = edited->identity.sha256;
  propose(peer, command, std::move(*source), edited->identity, "");
}

void Rank0Desk::change_without_file(const std::string& peer, const Command& command, const std::string& why) {
  auto edited = with_edits(adopted_text_.empty() ? "{}" : adopted_text_, edits_of(command));
  if (!edited) return answer(peer, command, failed(CommandOutcome::invalid_config, edited.error()));
  auto source = plan_from_config(*edited, options_.config_path.string());
  if (!source) return answer(peer, command, failed(CommandOutcome::invalid_config, source.error()));
  adopted_text_ = std::move(*edited);
  adopted_sha256_ = source->plan->config_sha256;
  propose(peer, command, std::move(*source), {}, "the config file was left as it is: " + why);
}

void Rank0Desk::propose(const std::string& peer, const Command& command, PlanSource source,
                        std::optional<FileIdentity> file, std::string note) {
  note_warnings(source.warnings);
  write_back_allowed_ = source.config.write_back;
  if (!source.plan->on && coordinator_.newest_is_off()) {
    return answer(peer, command, nothing_to_change("taken; collecting stays off"));
  }
  source.plan->cause = Cause::ctl;
  source.plan->by = command.by;
  source.plan->request_id = command.request_id;
  source.plan->file = std::move(file);
  if (command.at) source.plan->at = Step{*command.at};
  CommandReply reply;
  reply.message = std::move(note);
  answer(peer, command, reply);
  perform(coordinator_.propose(source.plan, wall_now()));
}

void Rank0Desk::answer(const std::string& peer, const Command& command, CommandReply reply) {
  door_.reply(peer, command, reply);
  if (answered_.emplace(command.request_id, std::move(reply)).second)
    answered_order_.push_back(command.request_id);
  if (answered_order_.size() > kAnswersKept) {
    answered_.erase(answered_order_.front());
    answered_order_.pop_front();
  }
}

CommandReply Rank0Desk::verdict_on(const std::string& request_id) const {
  const HistoryEntry* entry = coordinator_.journal().find_request(request_id);
  if (entry == nullptr) {
    const auto known = answered_.find(request_id);
    if (known != answered_.end()) return known->second;
    if (running_.count(request_id) != 0) return {};
    return failed(CommandOutcome::failed, "no such request in this job");
  }
  CommandReply reply;
  reply.revision = entry->revision;
  reply.message = entry->reason;
  reply.settled = entry->final;
  if (!entry->final) return reply;
  if (entry->verdict != "commit") {
    reply.outcome = CommandOutcome::failed;
    return reply;
  }
  reply.effective_step = entry->effective_step;
  reply.applied_by_all = coordinator_.applied_by_all(entry->revision);
  return reply;
}

}  // namespace gradmon
