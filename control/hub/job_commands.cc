// SPDX-License-Identifier: Apache-2.0
// JobService: the commands of gradmonctl. A command sets a state and never toggles it. A repeated request id
// gets the same answer and changes nothing.
#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "control/config/config_schema.h"
#include "control/config/json_edit.h"
#include "control/host/child_process.h"
#include "control/hub/job_service.h"
#include "control/log.h"
#include "control/text/utf8.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

constexpr Ticks kOffFileTimeout{1'000};        // after this time `off` is proposed without the config file
constexpr std::size_t kMostPendingEdits = 64;  // from then on only `off` is accepted
constexpr Ticks kAnswerTimeout{3'000};         // after this time another command is answered without the file
constexpr std::size_t kAnswersKept = 1000;
constexpr std::size_t kMostKeptMessage = 4'000;  // bytes of an answer that is kept
constexpr std::size_t kMostDryRuns = 16;
constexpr std::size_t kMostReason = 1'000;   // bytes of the reason in a refused change's history entry
constexpr std::size_t kMostAsked = 200;      // bytes of the refused command in it
constexpr std::size_t kMostOfASender = 256;  // bytes of a command's sender, and of its request id
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
  const auto unknown = [](const tl::expected<std::string, std::string>& text) -> std::optional<Names> {
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

// "user@host pid 123" without the process.
std::string_view without_pid(std::string_view by) { return by.substr(0, by.rfind(" pid ")); }

CommandReply refused_in_static_mode() {
  return failed_reply(CommandOutcome::failed,
                      "static mode: the config is read once, at the start; "
                      "DYNAMIC_MONITOR=True makes it changeable");
}

}  // namespace

void JobService::on_command(const std::string& peer, const Command& given) {
  if (given.request_id.size() > kMostOfASender) {
    return dependencies_.reply(
        peer, given,
        failed_reply(CommandOutcome::failed,
                     "the request id is longer than " + std::to_string(kMostOfASender) + " bytes"));
  }
  Command command = given;
  command.by = std::string(utf8_prefix(given.by, kMostOfASender));
  carry_out(peer, command);
}

void JobService::carry_out(const std::string& peer, const Command& command) {
  const auto known = answered_.find(command.request_id);
  if (known != answered_.end() && command.verb != CommandVerb::verdict)
    return dependencies_.reply(peer, command, known->second);
  CommandReply reply;
  switch (command.verb) {
    case CommandVerb::status:
      reply.status = status();
      return dependencies_.reply(peer, command, reply);
    case CommandVerb::history:
      reply.history = newest_history();
      return dependencies_.reply(peer, command, reply);
    case CommandVerb::alerts:
      return dependencies_.reply(peer, command, listed_alerts(command));
    case CommandVerb::verdict:
      return dependencies_.reply(peer, command, verdict_on(command.request_id));
    case CommandVerb::config:
      return dependencies_.reply(peer, command, config_in_force());
    case CommandVerb::dry_run:
    case CommandVerb::dry_run_targets:
      return dry_run(peer, command);
    case CommandVerb::targets:
      return list_targets(peer, command);
    case CommandVerb::cancel:
      return cancel(peer, command);
    case CommandVerb::evict:
      return evict(peer, command);
    case CommandVerb::unknown:
      reply =
          failed_reply(CommandOutcome::failed, "the job runs gradmon " + own_release() +
                                                   ", which does not know this command of gradmon " +
                                                   std::string(utf8_prefix(command.release, kMostOfASender)));
      return dependencies_.reply(peer, command, reply);
    case CommandVerb::on:
    case CommandVerb::off:
    case CommandVerb::set:
      break;
  }
  if (pending_edits_.count(command.request_id) != 0) return;
  if (carried_out(command.request_id)) return dependencies_.reply(peer, command, CommandReply{});
  change_config(peer, command);
}

// True if an earlier hub of this epoch carried it out, or this one forgot its answer to it.
bool JobService::carried_out(const std::string& request_id) const {
  const HistoryEntry* entry = request_id.empty() ? nullptr : coordinator_.journal().find_request(request_id);
  return entry != nullptr && entry->verdict != "refused";
}

void JobService::cancel(const std::string& peer, const Command& command) {
  CoordinatorActions actions;
  CommandReply reply;
  const bool any = coordinator_.cancel(command.by, actions, wall_now());
  reply.message = any ? "the pending change is withdrawn" : "no change is pending";
  perform(std::move(actions));
  answer(peer, command, reply);
}

void JobService::evict(const std::string& peer, const Command& command) {
  CoordinatorActions actions;
  const std::int64_t asked = command.rank.value_or(-1);
  const int rank = asked >= 0 && asked < job_.world_size ? static_cast<int>(asked) : -1;
  CommandReply reply;
  if (coordinator_.evict(Rank{rank}, command.by, actions)) {
    reply.message = "rank " + std::to_string(rank) + " will be dropped in 15 s";
  } else {
    reply =
        failed_reply(CommandOutcome::failed, "rank " + std::to_string(asked) + " is no member of this job");
  }
  perform(std::move(actions));
  answer(peer, command, reply);
}

// The newest entries that fit into one message.
std::vector<HistoryEntry> JobService::newest_history() const {
  std::vector<HistoryEntry> entries = coordinator_.journal().entries();
  std::size_t room = kMaxFrameBytes;
  auto oldest = entries.end();
  while (oldest != entries.begin()) {
    const HistoryEntry& entry = *std::prev(oldest);
    const std::size_t bytes = 500 + 16 * entry.applied.size() + entry.by.size() + entry.reason.size();
    if (bytes > room && oldest != entries.end()) break;
    room -= std::min(bytes, room);
    --oldest;
  }
  entries.erase(entries.begin(), oldest);
  return entries;
}

// While collecting is off: the newest valid config, which the next `on` uses.
CommandReply JobService::config_in_force() const {
  CommandReply reply;
  reply.status = status();
  const PlanPtr plan = coordinator_.committed_plan();
  reply.config_text = adopted_text_;
  if (reply.status->state == "on") reply.config_text = plan ? plan->config_text : "";
  if (!job_.lead.dynamic) reply.config_text = job_.lead.static_text;
  if (!reply.config_text.empty()) return reply;
  const std::string why = last_error_ ? ": " + last_error_->text : "";
  return failed_reply(CommandOutcome::failed, "the job has no valid config yet" + why);
}

void JobService::list_targets(const std::string& peer, const Command& command) {
  if (!begun_) return;  // The client asks again.
  CommandReply reply;
  reply.status = status();
  reply.status->ranks.clear();
  ask_ranks(peer, command, std::move(reply), nullptr);
}

// dry_run_ended() receives the answers.
void JobService::ask_ranks(const std::string& peer, const Command& command, CommandReply reply,
                           PlanPtr plan) {
  const auto older = [](const auto& a, const auto& b) { return a.second.number < b.second.number; };
  if (dry_runs_.size() >= kMostDryRuns)
    dry_runs_.erase(std::min_element(dry_runs_.begin(), dry_runs_.end(), older));
  dry_runs_[command.request_id] = {peer, command, std::move(reply), dry_runs_asked_++};
  perform(coordinator_.dry_run(command.request_id, std::move(plan)));
}

// Answers with the effect of `set`. Writes, proposes and stores nothing.
void JobService::dry_run(const std::string& peer, const Command& command) {
  if (!job_.lead.dynamic) return dependencies_.reply(peer, command, refused_in_static_mode());
  if (!begun_) return;  // The client asks again.
  const auto invalid = [&](const std::string& why) {
    dependencies_.reply(peer, command, failed_reply(CommandOutcome::invalid_config, why));
  };
  if (!broken_file_.empty() && command.config_text.empty()) return invalid(broken_file_);
  const bool of_set = command.verb == CommandVerb::dry_run;
  if (const std::string unknown = of_set ? unknown_names(command, adopted_text_) : ""; !unknown.empty())
    return invalid(unknown);
  CommandReply reply;
  reply.config_before = adopted_text_.empty() ? "{}" : adopted_text_;
  if (!command.config_text.empty()) reply.config_before = command.config_text;
  auto edited = set_values(reply.config_before, to_edits(command));
  if (!edited) return invalid(edited.error());
  auto source = plan_from_config(*edited, job_.lead.config_path);
  if (!source) return invalid(source.error());
  reply.config_text = std::move(*edited);
  reply.status = Status{};
  reply.status->config_path = job_.lead.config_path;
  reply.status->state = source->plan->on ? "on" : "off";
  reply.status->warnings = std::move(source->warnings);
  source->plan->on = true;  // Shows the matches also for a config that is off.
  ask_ranks(peer, command, std::move(reply), source->plan);
}

void JobService::dry_run_ended(DryRunResult result) {
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
  dependencies_.reply(request.peer, request.command, request.reply);
}

void JobService::change_config(const std::string& peer, const Command& command) {
  if (!job_.lead.dynamic) {
    log_static_mode();
    return answer(peer, command, refused_in_static_mode());
  }
  if (!begun_) return;  // The client asks again.
  if (sets_program(command)) {
    return answer(
        peer, command,
        failed_reply(CommandOutcome::not_allowed,
                     "on_alert.exec names a program that runs on the job's host: it is set in the config "
                     "file only"));
  }
  if (const std::string unknown = unknown_names(command, adopted_text_); !unknown.empty())
    return answer(peer, command, failed_reply(CommandOutcome::invalid_config, unknown));
  // While an edit runs, the state is unknown: the edit may be an `on`.
  const bool file_is_off = value_at(adopted_text_, "/dynamic_on") != "true";
  if (command.verb == CommandVerb::off && pending_edits_.empty() && coordinator_.newest_is_off() &&
      file_is_off) {
    return answer(peer, command, nothing_to_change("already off"));
  }
  if (!write_back_allowed_) return propose_without_file(peer, command, "write_back is false");
  if (command.verb == CommandVerb::off && !broken_file_.empty())
    return propose_without_file(peer, command, broken_file_);
  if (command.verb != CommandVerb::off && pending_edits_.size() >= kMostPendingEdits) {
    return dependencies_.reply(
        peer, command,
        failed_reply(CommandOutcome::failed, std::to_string(pending_edits_.size()) +
                                                 " changes already wait for the config file's disk"));
  }
  pending_edits_[command.request_id] = {peer, command, clock_, false};
  config_.edit(to_edits(command), [this, peer, command](ConfigService::Edited edited) {
    const auto running = pending_edits_.find(command.request_id);
    const bool given_up = running != pending_edits_.end() && running->second.given_up;
    if (running != pending_edits_.end()) pending_edits_.erase(running);
    if (given_up && command.verb == CommandVerb::off) return adopt_late_off(command, edited);
    on_edit_done(peer, command, std::move(edited));
  });
}

// `off` was proposed without the file, and the file was written later. The edit of an earlier `on` may have
// ended just before; `off` wins.
void JobService::adopt_late_off(const Command& off, const ConfigService::Edited& edited) {
  if (!edited) return;
  adopted_text_ = edited->text;
  adopted_sha256_ = edited->identity.sha256;
  if (coordinator_.newest_is_off()) return;
  auto source = plan_from_config(*edited, job_.lead.config_path);
  if (!source) return;
  source->plan->cause = Cause::ctl;
  source->plan->by = off.by;
  source->plan->request_id = off.request_id;
  source->plan->file = edited->identity;
  perform(coordinator_.propose(source->plan, wall_now()));
}

bool JobService::waits_for_edit() const {
  return std::any_of(pending_edits_.begin(), pending_edits_.end(),
                     [](const auto& edit) { return !edit.second.given_up; });
}

// If the file system hangs: proposes `off` without the file, and answers other commands.
void JobService::check_pending_edits() {
  for (auto& [id, running] : pending_edits_) {
    const bool off = running.command.verb == CommandVerb::off;
    if (running.given_up || clock_ - running.since < (off ? kOffFileTimeout : kAnswerTimeout)) continue;
    running.given_up = true;
    if (off) {
      propose_without_file(running.peer, running.command, "it was not written within a second");
    } else {
      dependencies_.reply(
          running.peer, running.command,
          failed_reply(CommandOutcome::incomplete,
                       "the config file's disk does not answer; the change is still being written"));
    }
  }
}

void JobService::on_edit_done(const std::string& peer, const Command& command, ConfigService::Edited edited) {
  if (!edited) {
    const EditError& error = edited.error();
    if (error.kind == EditError::Kind::invalid && command.verb != CommandVerb::off) {
      return answer(peer, command, failed_reply(CommandOutcome::invalid_config, error.text));
    }
    if (command.verb == CommandVerb::set)
      return answer(peer, command,
                    failed_reply(CommandOutcome::failed, "the config file was not changed: " + error.text));
    return propose_without_file(peer, command, error.text);
  }
  auto source = plan_from_config(*edited, job_.lead.config_path);
  if (!source) return answer(peer, command, failed_reply(CommandOutcome::invalid_config, source.error()));
  broken_file_.clear();
  clear_error(ErrorSource::content);
  adopted_text_ = edited->text;
  adopted_sha256_ = edited->identity.sha256;
  propose(peer, command, std::move(*source), edited->identity, "");
}

void JobService::propose_without_file(const std::string& peer, const Command& command,
                                      const std::string& why) {
  auto edited = set_values(adopted_text_.empty() ? "{}" : adopted_text_, to_edits(command));
  if (!edited) return answer(peer, command, failed_reply(CommandOutcome::invalid_config, edited.error()));
  auto source = plan_from_config(*edited, job_.lead.config_path);
  if (!source) return answer(peer, command, failed_reply(CommandOutcome::invalid_config, source.error()));
  adopted_text_ = std::move(*edited);
  adopted_sha256_ = source->plan->config_sha256;
  propose(peer, command, std::move(*source), {}, "the config file was not changed: " + why);
}

void JobService::propose(const std::string& peer, const Command& command, PlanSource source,
                         std::optional<FileIdentity> file, std::string note) {
  note_warnings(source.warnings);
  write_back_allowed_ = source.config().write_back;
  if (!source.plan->on && coordinator_.newest_is_off()) {
    coordinator_.forget_refusal();
    return answer(peer, command,
                  nothing_to_change((note.empty() ? "saved" : note) + "; collecting stays off"));
  }
  source.plan->cause = Cause::ctl;
  source.plan->by = command.by;
  source.plan->request_id = command.request_id;
  source.plan->file = std::move(file);
  if (command.at) source.plan->at = Step{*command.at};
  CommandReply reply;
  reply.message = std::move(note);
  reply.collects_nothing = source.plan->on && !collects_anything(source.config());
  if (reply.collects_nothing)
    reply.message += std::string(reply.message.empty() ? "" : "; ") + "nothing will be collected: " + kNoKind;
  answer(peer, command, reply);
  perform(coordinator_.propose(source.plan, wall_now()));
}

void JobService::answer(const std::string& peer, const Command& command, CommandReply reply) {
  dependencies_.reply(peer, command, reply);
  const bool refused = reply.outcome != CommandOutcome::done && reply.outcome != CommandOutcome::incomplete;
  if (refused) note_refused(command, reply.message);
  reply.message = std::string(utf8_prefix(reply.message, kMostKeptMessage));
  if (answered_.emplace(command.request_id, std::move(reply)).second)
    answered_order_.push_back(command.request_id);
  if (answered_order_.size() > kAnswersKept) {
    answered_.erase(answered_order_.front());
    answered_order_.pop_front();
  }
}

// The history also records refused commands. The reason begins with the command.
void JobService::note_refused(const Command& command, const std::string& why) {
  HistoryEntry entry;
  entry.cause = name_of(Cause::ctl);
  entry.by = command.by;
  entry.on = command.verb == CommandVerb::on;
  entry.request_id = command.request_id;
  const auto verb = static_cast<std::size_t>(command.verb);
  std::string asked = verb < kVerbs.size() ? kVerbs[verb] : "unknown command";
  for (const auto& [key, value] : command.edits) asked += ' ' + key + '=' + value;
  if (asked.size() > kMostAsked) asked = std::string(utf8_prefix(asked, kMostAsked)) + " ...";
  add_refused(std::move(entry), asked + ": " + why);
}

void JobService::note_refused_edit(const std::string& why) {
  HistoryEntry entry;
  entry.cause = name_of(begun_ ? Cause::file : Cause::start);
  entry.by = job_.lead.config_path;
  add_refused(std::move(entry), why);
}

// Skips a repetition of the newest entry, so that repetitions do not push out other entries.
void JobService::add_refused(HistoryEntry entry, const std::string& why) {
  entry.verdict = "refused";
  entry.reason = why.size() <= kMostReason ? why : std::string(utf8_prefix(why, kMostReason)) + " ...";
  const HistoryEntry* newest = coordinator_.journal().newest();
  const bool again = newest != nullptr && newest->verdict == entry.verdict &&
                     without_pid(newest->by) == without_pid(entry.by);
  if (again && newest->reason == entry.reason) return;
  entry.proposed_at = wall_now();
  entry.final = true;
  coordinator_.journal().add(std::move(entry));
}

CommandReply JobService::verdict_on(const std::string& request_id) const {
  const HistoryEntry* entry = coordinator_.journal().find_request(request_id);
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
