// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "control/wire/wire_values.h"

namespace gradmon {
namespace {

void write(const RankStatus& from, wire::RankStatus& to) {
  to.set_rank(from.rank.value);
  to.set_host(from.host);
  to.set_pid(from.pid);
  to.set_step(from.step);
  to.set_revision(from.revision.value);
  to.set_applied_step(from.applied_step);
  to.set_state(from.state);
  to.set_step_ms(from.step_ms);
  to.set_last_seen_ms(from.last_seen_ms);
  to.set_last_stepped_ms(from.last_stepped_ms);
  to.set_accepted(from.accepted.value);
  to.set_waited_ms(from.waited_ms);
  to.set_records(from.records);
  to.set_dropped(from.dropped);
  to.set_error(from.error);
  write(from.overhead, *to.mutable_overhead());
  write(from.targets, *to.mutable_targets());
}

RankStatus read_rank(const wire::RankStatus& from) {
  RankStatus to;
  to.rank = {from.rank()};
  to.host = from.host();
  to.pid = from.pid();
  to.step = from.step();
  to.revision = {from.revision()};
  to.applied_step = from.applied_step();
  to.state = from.state();
  to.step_ms = from.step_ms();
  to.last_seen_ms = from.last_seen_ms();
  to.last_stepped_ms = from.last_stepped_ms();
  to.accepted = {from.accepted()};
  to.waited_ms = from.waited_ms();
  to.records = from.records();
  to.dropped = from.dropped();
  to.error = from.error();
  to.overhead = read_overhead(from.overhead());
  to.targets = read_counts(from.targets());
  return to;
}

void write(const HistoryEntry& from, wire::HistoryEntry& to) {
  to.set_revision(from.revision.value);
  to.set_cause(from.cause);
  to.set_by(from.by);
  to.set_verdict(from.verdict);
  to.set_reason(from.reason);
  to.set_on(from.on);
  to.set_proposed_at(from.proposed_at);
  to.set_effective_step(from.effective_step);
  for (const auto& [rank, step] : from.applied) (*to.mutable_applied())[rank] = step;
  to.set_finished_step(from.finished_step);
  to.set_request_id(from.request_id);
  to.set_final(from.final);
}

HistoryEntry read_entry(const wire::HistoryEntry& from) {
  HistoryEntry to;
  to.revision = {from.revision()};
  to.cause = from.cause();
  to.by = from.by();
  to.verdict = from.verdict();
  to.reason = from.reason();
  to.on = from.on();
  to.proposed_at = from.proposed_at();
  to.effective_step = from.effective_step();
  to.applied.insert(from.applied().begin(), from.applied().end());
  to.finished_step = from.finished_step();
  to.request_id = from.request_id();
  to.final = from.final();
  return to;
}

// An outcome that this version does not know is a failure.
CommandOutcome read_outcome(std::uint32_t from) {
  for (const CommandOutcome known : {CommandOutcome::done, CommandOutcome::not_allowed,
                                     CommandOutcome::invalid_config, CommandOutcome::partial}) {
    if (from == static_cast<std::uint32_t>(known)) return known;
  }
  return CommandOutcome::failed;
}

}  // namespace

void write(const Command& from, wire::Command& to) {
  to.set_verb(static_cast<std::uint32_t>(from.verb));
  to.set_request_id(from.request_id);
  to.set_by(from.by);
  if (from.at) to.set_at(*from.at);
  if (from.collect_times) to.set_collect_times(*from.collect_times);
  if (from.step_interval) to.set_step_interval(*from.step_interval);
  for (const auto& [key, value] : from.edits) {
    wire::Edit& edit = *to.add_edits();
    edit.set_key(key);
    edit.set_value(value);
  }
  to.set_config_text(from.config_text);
  if (from.rank) to.set_rank(*from.rank);
}

tl::expected<Command, std::string> read_command(const wire::Command& from) {
  if (from.verb() > static_cast<std::uint32_t>(CommandVerb::evict)) {
    return tl::unexpected(std::string("an unknown command"));
  }
  Command to;
  to.verb = static_cast<CommandVerb>(from.verb());
  to.request_id = from.request_id();
  to.by = from.by();
  if (from.has_at()) to.at = from.at();
  if (from.has_collect_times()) to.collect_times = from.collect_times();
  if (from.has_step_interval()) to.step_interval = from.step_interval();
  for (const wire::Edit& edit : from.edits()) to.edits.emplace_back(edit.key(), edit.value());
  to.config_text = from.config_text();
  if (from.has_rank()) to.rank = from.rank();
  return to;
}

void write(const Status& from, wire::Status& to) {
  to.set_epoch(from.epoch);
  to.set_mode(from.mode);
  to.set_state(from.state);
  to.set_reason(from.reason);
  to.set_revision(from.revision.value);
  to.set_effective_step(from.effective_step);
  if (from.pending) {
    to.mutable_pending()->set_revision(from.pending->revision.value);
    to.mutable_pending()->set_reason(from.pending->reason);
    to.mutable_pending()->set_since(from.pending->since);
  }
  to.set_collected(from.collected);
  to.set_collect_times(from.collect_times);
  to.set_step_interval(from.step_interval);
  to.set_output_dir(from.output_dir);
  to.set_launch_id(from.launch_id);
  to.set_name(from.name);
  to.set_started(from.started);
  to.set_config_path(from.config_path);
  to.set_config_sha256(from.config_sha256);
  if (from.last_error) {
    to.mutable_last_error()->set_at(from.last_error->at);
    to.mutable_last_error()->set_text(from.last_error->text);
    to.mutable_last_error()->set_count(from.last_error->count);
  }
  for (const std::string& warning : from.warnings) to.add_warnings(warning);
  to.set_torch(from.torch);
  for (const std::string& hook : from.hooks) to.add_hooks(hook);
  for (const RankStatus& rank : from.ranks) write(rank, *to.add_ranks());
}

Status read_status(const wire::Status& from) {
  Status to;
  to.epoch = from.epoch();
  to.mode = from.mode();
  to.state = from.state();
  to.reason = from.reason();
  to.revision = {from.revision()};
  to.effective_step = from.effective_step();
  if (from.has_pending()) {
    to.pending = Pending{{from.pending().revision()}, from.pending().reason(), from.pending().since()};
  }
  to.collected = from.collected();
  to.collect_times = from.collect_times();
  to.step_interval = from.step_interval();
  to.output_dir = from.output_dir();
  to.launch_id = from.launch_id();
  to.name = from.name();
  to.started = from.started();
  to.config_path = from.config_path();
  to.config_sha256 = from.config_sha256();
  if (from.has_last_error()) {
    to.last_error = LastError{from.last_error().at(), from.last_error().text(), from.last_error().count()};
  }
  to.warnings.assign(from.warnings().begin(), from.warnings().end());
  to.torch = from.torch();
  to.hooks.assign(from.hooks().begin(), from.hooks().end());
  for (const wire::RankStatus& rank : from.ranks()) to.ranks.push_back(read_rank(rank));
  return to;
}

void write(const CommandReply& from, wire::CommandReply& to) {
  to.set_outcome(static_cast<std::uint32_t>(from.outcome));
  to.set_message(from.message);
  to.set_revision(from.revision.value);
  to.set_settled(from.settled);
  to.set_applied_by_all(from.applied_by_all);
  to.set_effective_step(from.effective_step);
  if (from.status) write(*from.status, *to.mutable_status());
  for (const HistoryEntry& entry : from.history) write(entry, *to.add_history());
  to.set_config_text(from.config_text);
  to.set_config_before(from.config_before);
  for (const DryRunResult::Answer& answer : from.rank_answers) {
    wire::DryRunEntry& out = *to.add_rank_answers();
    out.set_rank(answer.rank.value);
    out.set_known(answer.known);
    out.set_matches(answer.matches);
    out.set_objection(answer.objection);
    write(answer.targets, *out.mutable_targets());
  }
}

CommandReply read_reply(const wire::CommandReply& from) {
  CommandReply to;
  to.outcome = read_outcome(from.outcome());
  to.message = from.message();
  to.revision = {from.revision()};
  to.settled = from.settled();
  to.applied_by_all = from.applied_by_all();
  to.effective_step = from.effective_step();
  if (from.has_status()) to.status = read_status(from.status());
  for (const wire::HistoryEntry& entry : from.history()) to.history.push_back(read_entry(entry));
  to.config_text = from.config_text();
  to.config_before = from.config_before();
  for (const wire::DryRunEntry& answer : from.rank_answers())
    to.rank_answers.push_back({{answer.rank()},
                               answer.known(),
                               answer.matches(),
                               answer.objection(),
                               read_targets(answer.targets())});
  return to;
}

}  // namespace gradmon
