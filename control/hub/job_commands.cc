// SPDX-License-Identifier: Apache-2.0
// The commands of gradmonctl (CommandRole).
#include <algorithm>
#include <array>
#include <utility>

#include "control/config/config_schema.h"
#include "control/config/json_text.h"
#include "control/hub/job_service.h"
#include "control/text/utf8.h"

namespace gradmon {
namespace {

constexpr Ticks kOffFileTimeout{1'000};        // after this time `off` is proposed without the config file
constexpr std::size_t kMostPendingEdits = 64;  // from then on only `off` is accepted
constexpr Ticks kAnswerTimeout{3'000};         // after this time another command is answered without the file
constexpr std::size_t kAnswersKept = 1000;
constexpr std::size_t kMostKeptMessage = 4'000;  // bytes of an answer that is kept
constexpr std::size_t kMostDryRuns = 16;
constexpr std::size_t kMostAsked = 200;                       // bytes of a refused command in the history
constexpr std::size_t kMostRelease = 256;                     // bytes of the asking program's release
constexpr std::size_t kMostTargetBytes = kMaxFrameBytes / 3;  // for rank 0, and for all other ranks together

// The words of gradmonctl, by CommandVerb.
constexpr std::array<const char*, 13> kVerbs = {
    "status",  "on",    "off",           "set",     "history",
    "verdict", "get",   "set --dry-run", "targets", "targets --dry-run",
    "cancel",  "evict", "alerts"};

CommandReply nothing_to_change(std::string message) {
  CommandReply reply;
  reply.message = std::move(message);
  reply.settled = true;
  reply.applied_by_all = true;
  return reply;
}

ConfigService::Edits to_edits(const Command& command) {
  ConfigService::Edits edits = command.edits;
  if (command.verb != CommandVerb::on && command.verb != CommandVerb::off) return edits;
  edits.emplace_back("dynamic_on", command.verb == CommandVerb::on ? "true" : "false");
  if (command.collect_times) edits.emplace_back("collect_times", std::to_string(*command.collect_times));
  if (command.step_interval) edits.emplace_back("step_interval", std::to_string(*command.step_interval));
  return edits;
}

// True if an edit sets `on_alert.exec`, in any form. It names a program that runs on this host: the right to
// command the job, or its key, does not include the right to run programs.
bool sets_program(const Command& command) {
  const auto edited = set_values("{}", command.edits);
  if (edited) return value_at(*edited, "/on_alert/exec").has_value();
  return std::any_of(command.edits.begin(), command.edits.end(), [](const auto& edit) {
    return (edit.first + edit.second).find("on_alert") != std::string::npos;
  });
}

// The refusal of edits with unknown keys or ops; "" if they all exist, or are forced. Edits within a list are
// read in the config; unknown names of the config itself do not count.
std::string unknown_names(const Command& command, const std::string& config) {
  using Names = std::vector<std::string>;
  if (command.force) return "";
  const auto unknown = [](const Result<std::string>& text) -> std::optional<Names> {
    const auto source = text ? plan_from_config(*text, "") : tl::unexpected(text.error());
    return source ? std::optional(source->unknown) : std::nullopt;
  };
  std::optional<Names> names = unknown(set_values("{}", command.edits));
  const Names known = names ? Names() : unknown(config).value_or(Names());
  if (!names) names = unknown(set_values(config, command.edits));
  std::string all;
  for (const std::string& name : names.value_or(Names())) {
    if (std::count(known.begin(), known.end(), name) == 0) all += (all.empty() ? "" : "; ") + name;
  }
  return all.empty() ? "" : "refused: " + all + "; --force sets it all the same";
}

constexpr const char* kStaticMode =
    "static mode: the config is read once, at the start; DYNAMIC_MONITOR=True makes it changeable";

}  // namespace

bool CommandRole::on_command(const Request& asked) {
  const Command& command = asked.command;
  const auto known = answered_.find(command.request_id);
  if (known != answered_.end() && command.verb != CommandVerb::verdict) {
    reply(asked, known->second);
    return true;
  }
  switch (command.verb) {
    case CommandVerb::status:
    case CommandVerb::history:
    case CommandVerb::config:
    case CommandVerb::alerts:
    case CommandVerb::targets:
      return false;
    case CommandVerb::verdict:
      reply(asked, verdict_on(command.request_id));
      break;
    case CommandVerb::dry_run:
    case CommandVerb::dry_run_targets:
      dry_run(asked);
      break;
    case CommandVerb::cancel:
      cancel(asked);
      break;
    case CommandVerb::evict:
      evict(asked);
      break;
    case CommandVerb::unknown:
      reply(asked, failed_reply(CommandOutcome::failed,
                                "the job runs gradmon " + own_release() +
                                    ", which does not know this command of gradmon " +
                                    std::string(utf8_prefix(command.release, kMostRelease))));
      break;
    case CommandVerb::on:
    case CommandVerb::off:
    case CommandVerb::set:
      change_config(asked);
  }
  return true;
}

// True if an earlier hub of this epoch carried it out, or this one forgot its answer to it.
bool CommandRole::carried_out(const std::string& request_id) const {
  const HistoryEntry* entry =
      request_id.empty() ? nullptr : state_.coordinator.journal().find_request(request_id);
  return entry != nullptr && entry->verdict != "refused";
}

void CommandRole::cancel(const Request& asked) {
  CommandReply reply;
  const bool any = state_.coordinator.cancel(asked.command.by, state_.actions, wall_now());
  reply.message = any ? "the pending change is withdrawn" : "no change is pending";
  answer(asked, std::move(reply));
}

void CommandRole::evict(const Request& asked) {
  const std::int64_t wanted = asked.command.rank.value_or(-1);
  const std::string name = "rank " + std::to_string(wanted);
  const int rank = wanted >= 0 && wanted < state_.job.world_size ? static_cast<int>(wanted) : -1;
  if (!state_.coordinator.evict(Rank{rank}, asked.command.by, state_.actions))
    return refuse(asked, CommandOutcome::failed, name + " is no member of this job");
  CommandReply reply;
  reply.message = name + " will be dropped in 15 s";
  answer(asked, std::move(reply));
}

void CommandRole::list_targets(const Request& asked, Status status) {
  if (!state_.begun) return;  // The client asks again.
  CommandReply reply;
  status.ranks.clear();
  reply.status = std::move(status);
  ask_ranks(asked, std::move(reply), nullptr);
}

// dry_run_ended() receives the answers.
void CommandRole::ask_ranks(const Request& asked, CommandReply reply, PlanPtr plan) {
  const auto older = [](const auto& a, const auto& b) { return a.second.number < b.second.number; };
  if (dry_runs_.size() >= kMostDryRuns)
    dry_runs_.erase(std::min_element(dry_runs_.begin(), dry_runs_.end(), older));
  const std::string& id = asked.command.request_id;
  dry_runs_[id] = {asked, std::move(reply), dry_runs_asked_++};
  state_.actions += state_.coordinator.dry_run(id, std::move(plan));
}

// Answers with the effect of `set`. Writes, proposes and stores nothing.
void CommandRole::dry_run(const Request& asked) {
  const Command& command = asked.command;
  const auto refused = [&](CommandOutcome outcome, std::string why) {
    reply(asked, failed_reply(outcome, std::move(why)));
  };
  if (!state_.job.lead.dynamic) return refused(CommandOutcome::failed, kStaticMode);
  if (!state_.begun) return;  // The client asks again.
  const auto invalid = [&](std::string why) { refused(CommandOutcome::invalid_config, std::move(why)); };
  if (!state_.broken_file.empty() && command.config_text.empty()) return invalid(state_.broken_file);
  const bool of_set = command.verb == CommandVerb::dry_run;
  if (std::string unknown = of_set ? unknown_names(command, state_.config_text) : ""; !unknown.empty())
    return invalid(std::move(unknown));
  CommandReply reply;
  reply.config_before = state_.config_text.empty() ? "{}" : state_.config_text;
  if (!command.config_text.empty()) reply.config_before = command.config_text;
  auto edited = set_values(reply.config_before, to_edits(command));
  if (!edited) return invalid(edited.error());
  auto source = state_.read_plan(*edited);
  if (!source) return invalid(source.error());
  reply.config_text = std::move(*edited);
  reply.status = Status{};
  reply.status->config_path = state_.job.lead.config_path;
  reply.status->state = source->plan->on ? "on" : "off";
  reply.status->warnings = std::move(source->warnings);
  source->plan->on = true;  // Shows the matches also for a config that is off.
  ask_ranks(asked, std::move(reply), source->plan);
}

void CommandRole::dry_run_ended(DryRunResult result) {
  const auto found = dry_runs_.find(result.id);
  if (found == dry_runs_.end()) return;
  DryRunRequest request = std::move(found->second);
  dry_runs_.erase(found);
  // One message has room for the objections and either the config texts or the targets.
  const bool texts = request.command.verb == CommandVerb::dry_run;
  if (!texts) request.reply.config_before.clear();
  if (!texts) request.reply.config_text.clear();
  std::size_t objections = 0;
  for (DryRunResult::Answer& answer : result.answers) {
    const std::size_t room = kMostTargetBytes / (answer.rank.value == 0 ? 1 : result.answers.size());
    answer.targets = texts ? TargetList{} : within(std::move(answer.targets), room);
    if (answer.objection.empty()) continue;
    answer.objection.resize(std::min<std::size_t>(answer.objection.size(), objections++ < 20 ? 500 : 1));
  }
  request.reply.rank_answers = std::move(result.answers);
  reply(request, std::move(request.reply));
}

void CommandRole::change_config(const Request& asked) {
  const Command& command = asked.command;
  if (pending_edits_.count(command.request_id) != 0) return;
  if (carried_out(command.request_id)) return reply(asked, CommandReply{});
  if (!state_.job.lead.dynamic) {
    config_.log_static_mode();
    return refuse(asked, CommandOutcome::failed, kStaticMode);
  }
  if (!state_.begun) return;  // The client asks again.
  if (sets_program(command)) {
    return refuse(
        asked, CommandOutcome::not_allowed,
        "on_alert.exec names a program that runs on the job's host: it is set in the config file only");
  }
  if (std::string unknown = unknown_names(command, state_.config_text); !unknown.empty())
    return refuse(asked, CommandOutcome::invalid_config, std::move(unknown));
  const bool off = command.verb == CommandVerb::off;
  // While an edit runs, the state is unknown: the edit may be an `on`.
  const bool file_is_off = value_at(state_.config_text, "/dynamic_on") != "true";
  if (off && pending_edits_.empty() && state_.coordinator.newest_is_off() && file_is_off)
    return answer(asked, nothing_to_change("already off"));
  if (!state_.write_back_allowed) return propose_without_file(asked, "write_back is false");
  if (off && !state_.broken_file.empty()) return propose_without_file(asked, state_.broken_file);
  if (!off && pending_edits_.size() >= kMostPendingEdits) {
    return reply(
        asked, failed_reply(CommandOutcome::failed, std::to_string(pending_edits_.size()) +
                                                        " changes already wait for the config file's disk"));
  }
  pending_edits_[command.request_id] = {asked, state_.clock, false};
  config_.file().edit(to_edits(command), [this, asked](ConfigService::Edited edited) {
    const auto running = pending_edits_.find(asked.command.request_id);
    const bool given_up = running != pending_edits_.end() && running->second.given_up;
    if (running != pending_edits_.end()) pending_edits_.erase(running);
    if (!given_up || asked.command.verb != CommandVerb::off) return on_edit_done(asked, std::move(edited));
    if (edited) adopt_late_off(asked.command, *edited);
  });
}

// `off` was proposed without the file, and the file was written later. The edit of an earlier `on` may have
// ended just before; `off` wins.
void CommandRole::adopt_late_off(const Command& off, const FileContent& edited) {
  state_.take_config(edited.text, edited.identity.sha256);
  if (state_.coordinator.newest_is_off()) return;
  auto source = state_.read_plan(edited);
  if (!source) return;
  source->plan->cause = Cause::ctl;
  source->plan->by = off.by;
  source->plan->request_id = off.request_id;
  source->plan->file = edited.identity;
  state_.actions += state_.coordinator.propose(source->plan, wall_now());
}

bool CommandRole::waits_for_edit() const {
  return std::any_of(pending_edits_.begin(), pending_edits_.end(),
                     [](const auto& edit) { return !edit.second.given_up; });
}

void CommandRole::tick() {
  for (auto& [id, running] : pending_edits_) {
    const bool off = running.command.verb == CommandVerb::off;
    if (running.given_up || state_.clock - running.since < (off ? kOffFileTimeout : kAnswerTimeout)) continue;
    running.given_up = true;
    if (off) {
      propose_without_file(running, "it was not written within a second");
    } else {
      reply(running,
            failed_reply(CommandOutcome::incomplete,
                         "the config file's disk does not answer; the change is still being written"));
    }
  }
}

void CommandRole::on_edit_done(const Request& asked, ConfigService::Edited edited) {
  if (!edited) {
    const EditError& error = edited.error();
    const CommandVerb verb = asked.command.verb;
    if (error.kind == EditError::Kind::invalid && verb != CommandVerb::off)
      return refuse(asked, CommandOutcome::invalid_config, error.text);
    if (verb == CommandVerb::set)
      return refuse(asked, CommandOutcome::failed, "the config file was not changed: " + error.text);
    return propose_without_file(asked, error.text);
  }
  auto source = state_.read_plan(*edited);
  if (!source) return refuse(asked, CommandOutcome::invalid_config, source.error());
  state_.broken_file.clear();
  state_.clear_error(JobState::ErrorSource::content);
  state_.take_config(edited->text, edited->identity.sha256);
  propose(asked, std::move(*source), edited->identity, "");
}

void CommandRole::propose_without_file(const Request& asked, const std::string& why) {
  auto edited = set_values(state_.config_text.empty() ? "{}" : state_.config_text, to_edits(asked.command));
  auto source = edited.and_then([this](const std::string& text) { return state_.read_plan(text); });
  if (!source) return refuse(asked, CommandOutcome::invalid_config, source.error());
  state_.take_config(std::move(*edited), source->plan->config_sha256);
  propose(asked, std::move(*source), {}, "the config file was not changed: " + why);
}

void CommandRole::propose(const Request& asked, PlanSource source, std::optional<FileIdentity> file,
                          std::string note) {
  Plan& plan = *source.plan;
  state_.note_warnings(source.warnings);
  state_.write_back_allowed = source.config().write_back;
  if (!plan.on && state_.coordinator.newest_is_off()) {
    state_.coordinator.forget_refusal();
    return answer(asked, nothing_to_change((note.empty() ? "saved" : note) + "; collecting stays off"));
  }
  plan.cause = Cause::ctl;
  plan.by = asked.command.by;
  plan.request_id = asked.command.request_id;
  plan.file = std::move(file);
  if (asked.command.at) plan.at = Step{*asked.command.at};
  CommandReply reply;
  reply.message = std::move(note);
  reply.collects_nothing = plan.on && !collects_anything(source.config());
  if (reply.collects_nothing)
    reply.message += std::string(reply.message.empty() ? "" : "; ") + "nothing will be collected: " + kNoKind;
  answer(asked, std::move(reply));
  state_.actions += state_.coordinator.propose(source.plan, wall_now());
}

void CommandRole::answer(const Request& asked, CommandReply given) {
  reply(asked, given);
  const bool refused = given.outcome != CommandOutcome::done && given.outcome != CommandOutcome::incomplete;
  if (refused) note_refused(asked.command, given.message);
  given.message = std::string(utf8_prefix(given.message, kMostKeptMessage));
  if (answered_.emplace(asked.command.request_id, std::move(given)).second)
    answered_order_.push_back(asked.command.request_id);
  if (answered_order_.size() > kAnswersKept) {
    answered_.erase(answered_order_.front());
    answered_order_.pop_front();
  }
}

// The history also records refused commands. The reason begins with the command.
void CommandRole::note_refused(const Command& command, const std::string& why) {
  HistoryEntry entry;
  entry.cause = name_of(Cause::ctl);
  entry.by = command.by;
  entry.on = command.verb == CommandVerb::on;
  entry.request_id = command.request_id;
  const auto verb = static_cast<std::size_t>(command.verb);
  std::string asked = verb < kVerbs.size() ? kVerbs[verb] : "unknown command";
  for (const auto& [key, value] : command.edits) asked += ' ' + key + '=' + value;
  if (asked.size() > kMostAsked) asked = std::string(utf8_prefix(asked, kMostAsked)) + " ...";
  state_.add_refused(std::move(entry), asked + ": " + why);
}

CommandReply CommandRole::verdict_on(const std::string& request_id) const {
  const HistoryEntry* entry = state_.coordinator.journal().find_request(request_id);
  if (entry == nullptr || entry->verdict == "refused") {
    const auto known = answered_.find(request_id);
    if (known != answered_.end()) {
      CommandReply reply = known->second;
      reply.settled = reply.settled || reply.outcome != CommandOutcome::done;
      return reply;
    }
    if (pending_edits_.count(request_id) != 0) return {};
    return failed_reply(CommandOutcome::failed, "no such request in this job");
  }
  CommandReply reply;
  reply.revision = entry->revision;
  reply.message = entry->reason;
  reply.settled = entry->final;
  if (entry->final && entry->verdict != "commit") reply.outcome = CommandOutcome::failed;
  if (!entry->final || entry->verdict != "commit") return reply;
  reply.effective_step = entry->effective_step;
  reply.applied_by_all = state_.coordinator.applied_by_all(entry->revision);
  return reply;
}

}  // namespace gradmon
