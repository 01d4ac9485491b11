// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "control/wire/field_codec.h"
#include "control/wire/wire_values.h"

namespace gradmon {
namespace {

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

// An unknown outcome is a failure.
CommandOutcome read_outcome(std::uint32_t from) {
  for (const CommandOutcome known :
       {CommandOutcome::done, CommandOutcome::no_lead, CommandOutcome::not_allowed,
        CommandOutcome::invalid_config, CommandOutcome::incomplete}) {
    if (from == static_cast<std::uint32_t>(known)) return known;
  }
  return CommandOutcome::failed;
}

}  // namespace

std::string own_release() { return GRADMON_VERSION; }

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
  to.set_after(from.after);
  to.set_release(from.release);
  to.set_force(from.force);
}

tl::expected<Command, std::string> read_command(const wire::Command& from) {
  Command to;
  const bool known = from.verb() <= static_cast<std::uint32_t>(CommandVerb::alerts);
  to.verb = known ? static_cast<CommandVerb>(from.verb()) : CommandVerb::unknown;
  to.request_id = from.request_id();
  to.by = from.by();
  if (from.has_at()) to.at = from.at();
  if (from.has_collect_times()) to.collect_times = from.collect_times();
  if (from.has_step_interval()) to.step_interval = from.step_interval();
  for (const wire::Edit& edit : from.edits()) to.edits.emplace_back(edit.key(), edit.value());
  to.config_text = from.config_text();
  if (from.has_rank()) to.rank = from.rank();
  to.after = from.after();
  to.release = from.release();
  to.force = from.force();
  return to;
}

void write(const CommandReply& from, wire::CommandReply& to) {
  to.set_outcome(static_cast<std::uint32_t>(from.outcome));
  to.set_message(from.message);
  to.set_revision(from.revision.value);
  to.set_settled(from.settled);
  to.set_applied_by_all(from.applied_by_all);
  to.set_effective_step(from.effective_step);
  if (from.status) to.set_status(encode_fields(*from.status));
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
  for (const RankAlert& alert : from.alerts) to.add_alerts(encode_fields(alert));
  to.set_raised_alerts(from.raised_alerts);
  to.set_release(from.release);
  to.set_collects_nothing(from.collects_nothing);
}

tl::expected<CommandReply, std::string> read_reply(const wire::CommandReply& from) {
  CommandReply to;
  to.outcome = read_outcome(from.outcome());
  to.message = from.message();
  to.revision = {from.revision()};
  to.settled = from.settled();
  to.applied_by_all = from.applied_by_all();
  to.effective_step = from.effective_step();
  if (from.has_status()) {
    to.status = decode_fields<Status>(from.status());
    if (!to.status) return tl::unexpected(std::string("invalid status"));
  }
  for (const wire::HistoryEntry& entry : from.history()) to.history.push_back(read_entry(entry));
  to.config_text = from.config_text();
  to.config_before = from.config_before();
  for (const wire::DryRunEntry& answer : from.rank_answers())
    to.rank_answers.push_back({{answer.rank()},
                               answer.known(),
                               answer.matches(),
                               answer.objection(),
                               read_targets(answer.targets())});
  for (const std::string& alert : from.alerts()) {
    auto read = decode_fields<RankAlert>(alert);
    if (!read) return tl::unexpected(std::string("invalid alert"));
    to.alerts.push_back(std::move(*read));
  }
  to.raised_alerts = from.raised_alerts();
  to.release = from.release();
  to.collects_nothing = from.collects_nothing();
  return to;
}

}  // namespace gradmon
