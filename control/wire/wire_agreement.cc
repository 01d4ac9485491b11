// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <utility>

#include "control/wire/status_fields.h"
#include "control/wire/wire_values.h"

namespace gradmon {
namespace {

void write(const Plan& from, wire::Plan& to) {
  to.set_on(from.on);
  to.set_config_text(from.config_text);
  to.set_config_sha256(from.config_sha256);
  to.set_collect_times(from.collect_times);
  to.set_step_interval(from.step_interval);
  to.set_at(from.at.value);
  if (from.continues) {
    to.mutable_continues()->set_first(from.continues->first().value);
    to.mutable_continues()->set_interval(from.continues->interval());
    to.mutable_continues()->set_times(from.continues->times());
  }
  if (from.file) {
    to.mutable_file()->set_mtime_ns(from.file->mtime_ns);
    to.mutable_file()->set_size(from.file->size);
    to.mutable_file()->set_sha256(from.file->sha256);
  }
  to.set_cause(static_cast<std::uint32_t>(from.cause));
  to.set_by(from.by);
  to.set_request_id(from.request_id);
  if (from.lookahead) to.set_lookahead(*from.lookahead);
  to.set_max_wait_ms(from.max_wait.count());
  if (from.max_overhead) to.set_max_overhead(*from.max_overhead);
  if (from.returns_to) write(*from.returns_to, *to.mutable_returns_to());
}

tl::expected<PlanPtr, std::string> read_plan(const wire::Plan& from) {
  const bool in_range =
      from.collect_times() >= 0 && from.step_interval() >= 1 && from.max_wait_ms() > 0 &&
      from.cause() <= static_cast<std::uint32_t>(Cause::budget) &&
      (!from.has_lookahead() || from.lookahead() >= 1) &&
      (!from.has_max_overhead() || from.max_overhead() > 0) &&
      (!from.has_continues() || (from.continues().interval() >= 1 && from.continues().times() >= 0));
  if (!in_range) return tl::unexpected(std::string("plan has a value out of range"));
  auto plan = std::make_shared<Plan>();
  plan->on = from.on();
  plan->config_text = from.config_text();
  plan->config_sha256 = from.config_sha256();
  plan->collect_times = from.collect_times();
  plan->step_interval = from.step_interval();
  plan->at = Step{from.at()};
  if (from.has_continues()) {
    plan->continues =
        Schedule(Step{from.continues().first()}, from.continues().interval(), from.continues().times());
  }
  if (from.has_file())
    plan->file = FileIdentity{from.file().mtime_ns(), from.file().size(), from.file().sha256()};
  plan->cause = static_cast<Cause>(from.cause());
  plan->by = from.by();
  plan->request_id = from.request_id();
  if (from.has_lookahead()) plan->lookahead = from.lookahead();
  plan->max_wait = Ticks{from.max_wait_ms()};
  if (from.has_max_overhead()) plan->max_overhead = from.max_overhead();
  if (from.has_returns_to()) {
    if (from.returns_to().has_returns_to()) return tl::unexpected(std::string("a plan returns to a capture"));
    auto next = read_plan(from.returns_to());
    if (!next) return next;
    plan->returns_to = std::move(*next);
  }
  return plan;
}

}  // namespace

void write(const Verdict& from, wire::Verdict& to) {
  to.set_revision(from.revision.value);
  if (from.plan) write(*from.plan, *to.mutable_plan());
  to.set_effective(from.effective.value);
  to.set_abort_reason(static_cast<std::uint32_t>(from.abort_reason));
  to.set_reason(from.reason);
}

tl::expected<Verdict, std::string> read_verdict(const wire::Verdict& from) {
  Verdict to;
  to.revision = {from.revision()};
  if (from.has_plan()) {
    auto plan = read_plan(from.plan());
    if (!plan) return tl::unexpected(plan.error());
    to.plan = std::move(*plan);
  }
  if (from.abort_reason() > static_cast<std::uint32_t>(AbortReason::not_logged)) {
    return tl::unexpected(std::string("a verdict with an unknown reason"));
  }
  to.effective = {from.effective()};
  to.abort_reason = static_cast<AbortReason>(from.abort_reason());
  to.reason = from.reason();
  return to;
}

void write(const KnownDecisions& from, wire::KnownDecisions& to) {
  to.set_closed(from.closed.value);
  if (from.commit) write(*from.commit, *to.mutable_commit());
}

tl::expected<KnownDecisions, std::string> read_known_decisions(const wire::KnownDecisions& from) {
  KnownDecisions to;
  to.closed = {from.closed()};
  if (from.has_commit()) {
    auto commit = read_verdict(from.commit());
    if (!commit) return tl::unexpected(commit.error());
    if (!commit->commit()) return tl::unexpected(std::string("commit verdict has no plan"));
    to.commit = std::move(*commit);
  }
  return to;
}

void write(const Hello& from, wire::Hello& to) {
  to.set_launch_id(from.launch_id);
  to.set_world_size(from.world_size);
  to.set_host(from.host);
  to.set_pid(from.pid);
  to.set_process_id(from.process_id);
  to.set_start_iteration(from.start_iteration.value);
  to.set_version(from.version);
  to.set_number(from.number);
  to.set_step(from.step.value);
  to.set_lapsed(from.lapsed);
  to.set_held_epoch(from.held_epoch);
  to.set_epoch_order(from.epoch_order);
  if (from.held) write(*from.held, *to.mutable_held());
}

tl::expected<Hello, std::string> read_hello(const wire::Hello& from) {
  Hello to;
  to.launch_id = from.launch_id();
  to.world_size = from.world_size();
  to.host = from.host();
  to.pid = from.pid();
  to.process_id = from.process_id();
  to.start_iteration = {from.start_iteration()};
  to.version = from.version();
  to.number = from.number();
  to.step = {from.step()};
  to.lapsed = from.lapsed();
  to.held_epoch = from.held_epoch();
  to.epoch_order = from.epoch_order();
  if (!from.has_held()) return to;
  auto held = read_verdict(from.held());
  if (!held) return tl::unexpected(held.error());
  if (!held->commit()) return tl::unexpected(std::string("commit verdict has no plan"));
  to.held = std::move(*held);
  return to;
}

void write(const Offered& from, wire::Offered& to) {
  to.set_revision(from.revision.value);
  to.set_config_sha256(from.config_sha256);
  to.set_matches(from.matches);
  to.set_unmatched(from.unmatched);
}

Offered read_offered(const wire::Offered& from) {
  return {{from.revision()}, from.config_sha256(), from.matches(), from.unmatched()};
}

void write(const Ready& from, wire::Ready& to) {
  to.set_revision(from.revision.value);
  to.set_config_sha256(from.config_sha256);
  to.set_fence(from.fence.value);
}

void write(const Busy& from, wire::Busy& to) {
  to.set_revision(from.revision.value);
  to.set_reason(from.reason);
}

void write(const Reject& from, wire::Reject& to) {
  to.set_revision(from.revision.value);
  to.set_reason(from.reason);
}

void write(const Applied& from, wire::Applied& to) {
  to.set_revision(from.revision.value);
  to.set_step(from.step.value);
}

void write(const Overhead& from, wire::Overhead& to) {
  to.set_revision(from.revision.value);
  to.set_collected(from.collected);
  to.set_share(from.share);
  to.set_steps(from.steps);
}

// Untrusted: an invalid share or count makes the overhead unknown.
Overhead read_overhead(const wire::Overhead& from) {
  const bool in_range =
      std::isfinite(from.share()) && from.share() >= 0 && from.collected() >= 0 && from.steps() >= 0;
  if (!in_range) return {};
  return {{from.revision()}, from.collected(), from.share(), from.steps()};
}

void write(const Progress& from, wire::Progress& to) {
  to.set_step(from.step.value);
  to.set_step_ms(from.step_ms);
  to.set_collecting(from.collecting);
  to.set_waiting(from.waiting);
  to.set_records(from.records);
  to.set_dropped(from.dropped);
  to.set_closed(from.closed.value);
  to.set_applied(from.applied.value);
  to.set_applied_step(from.applied_step.value);
  to.set_finished(from.finished.value);
  to.set_error(from.error);
  write(from.overhead, *to.mutable_overhead());
  write(from.targets, *to.mutable_targets());
  to.set_skipped_updates(from.skipped.count);
  to.set_last_skipped(from.skipped.last.value);
  to.set_number(from.number);
  to.set_waited_ms(from.waited_ms);
  for (const std::string& warning : from.warnings) to.add_warnings(warning);
  to.set_alerts(from.alerts);
  to.set_flight_written(from.flight_written);
  to.set_flight_lost(from.flight_lost);
}

Progress read_progress(const wire::Progress& from) {
  Progress to;
  to.step = {from.step()};
  if (std::isfinite(from.step_ms()) && from.step_ms() >= 0) to.step_ms = from.step_ms();
  to.collecting = from.collecting();
  to.waiting = from.waiting();
  to.records = from.records();
  to.dropped = from.dropped();
  to.closed = {from.closed()};
  to.applied = {from.applied()};
  to.applied_step = {from.applied_step()};
  to.finished = {from.finished()};
  to.error = from.error();
  to.overhead = read_overhead(from.overhead());
  to.targets = read_counts(from.targets());
  to.skipped = {from.skipped_updates(), {from.last_skipped()}};
  to.number = from.number();
  to.waited_ms = from.waited_ms();
  to.warnings.assign(from.warnings().begin(), from.warnings().end());
  to.alerts = from.alerts();
  to.flight_written = from.flight_written();
  to.flight_lost = from.flight_lost();
  return to;
}

void write(const DryRunAnswer& from, wire::DryRunAnswer& to) {
  to.set_id(from.id);
  to.set_matches(from.matches);
  to.set_objection(from.objection);
  write(from.targets, *to.mutable_targets());
}

void write(const DryRun& from, wire::DryRun& to) {
  to.set_id(from.id);
  if (from.plan) write(*from.plan, *to.mutable_plan());
  to.set_room(static_cast<std::uint32_t>(from.room));
}

tl::expected<DryRun, std::string> read_dry_run(const wire::DryRun& from) {
  if (!from.has_plan()) return DryRun{from.id(), nullptr, from.room()};
  return read_plan(from.plan()).map([&](PlanPtr plan) {
    return DryRun{from.id(), std::move(plan), from.room()};
  });
}

void write(const Welcome& from, wire::Welcome& to) {
  to.set_process_id(from.process_id);
  to.set_incarnation(from.incarnation);
  to.set_number(from.number);
  to.set_refused(from.refused);
  to.set_retry(from.retry);
  to.set_epoch_starts_on(from.epoch_starts_on);
  to.set_run_id(from.run_id);
  to.set_started(from.started);
  to.set_epoch_order(from.epoch_order);
  write(from.last, *to.mutable_last());
  to.set_takes_alerts(from.takes_alerts);
  to.set_takes_replicas(from.takes_replicas);
}

tl::expected<Welcome, std::string> read_welcome(const wire::Welcome& from) {
  auto last = read_known_decisions(from.last());
  if (!last) return tl::unexpected(last.error());
  return Welcome{from.process_id(),  from.incarnation(),     from.number(),       from.refused(),
                 from.retry(),       from.epoch_starts_on(), from.run_id(),       from.started(),
                 from.epoch_order(), std::move(*last),       from.takes_alerts(), from.takes_replicas()};
}

void write(const Offer& from, wire::Offer& to) {
  to.set_revision(from.revision.value);
  write(*from.plan, *to.mutable_plan());
}

tl::expected<Offer, std::string> read_offer(const wire::Offer& from) {
  return read_plan(from.plan()).map([&](PlanPtr plan) { return Offer{{from.revision()}, std::move(plan)}; });
}

void write(const Prepare& from, wire::Prepare& to) {
  to.set_revision(from.revision.value);
  to.set_config_sha256(from.config_sha256);
  to.set_lookahead(from.lookahead);
  write(from.last, *to.mutable_last());
}

tl::expected<Prepare, std::string> read_prepare(const wire::Prepare& from) {
  auto last = read_known_decisions(from.last());
  if (!last) return tl::unexpected(last.error());
  if (from.lookahead() < 1) return tl::unexpected(std::string("a lookahead below 1"));
  return Prepare{{from.revision()}, from.config_sha256(), from.lookahead(), std::move(*last)};
}

void write(const LogEntry& from, wire::LogEntry& to) {
  if (const auto* asked = std::get_if<OfferedEntry>(&from)) {
    to.mutable_asked()->set_revision(asked->revision.value);
    to.mutable_asked()->set_at(asked->at);
    write(*asked->plan, *to.mutable_asked()->mutable_plan());
  } else if (const auto* verdict = std::get_if<Verdict>(&from)) {
    write(*verdict, *to.mutable_verdict());
  } else if (const auto* joined = std::get_if<JoinedEntry>(&from)) {
    to.mutable_joined()->set_rank(joined->rank.value);
    to.mutable_joined()->set_incarnation(joined->incarnation);
    write(joined->hello, *to.mutable_joined()->mutable_hello());
  } else if (const auto* gone = std::get_if<DepartureEntry>(&from)) {
    to.mutable_gone()->set_rank(gone->rank.value);
    to.mutable_gone()->set_how(static_cast<std::uint32_t>(gone->how));
    to.mutable_gone()->set_last(gone->last.value);
    to.mutable_gone()->set_by(gone->by);
  } else if (const auto* ended = std::get_if<WrittenBackEntry>(&from)) {
    to.mutable_written_back()->set_revision(ended->revision.value);
  } else if (const auto* applied = std::get_if<AppliedEntry>(&from)) {
    to.mutable_applied()->set_revision(applied->revision.value);
  }
}

tl::expected<LogEntry, std::string> read_log_entry(const wire::LogEntry& from) {
  switch (from.entry_case()) {
    case wire::LogEntry::kAsked:
      return read_plan(from.asked().plan()).map([&](PlanPtr plan) {
        return LogEntry(OfferedEntry{{from.asked().revision()}, std::move(plan), from.asked().at()});
      });
    case wire::LogEntry::kVerdict:
      return read_verdict(from.verdict()).map([](Verdict verdict) { return LogEntry(std::move(verdict)); });
    case wire::LogEntry::kJoined:
      return read_hello(from.joined().hello()).map([&](Hello hello) {
        return LogEntry(JoinedEntry{{from.joined().rank()}, from.joined().incarnation(), std::move(hello)});
      });
    case wire::LogEntry::kGone:
      if (from.gone().how() > static_cast<std::uint32_t>(DepartureEntry::How::evicted)) break;
      return DepartureEntry{{from.gone().rank()},
                            static_cast<DepartureEntry::How>(from.gone().how()),
                            {from.gone().last()},
                            from.gone().by()};
    case wire::LogEntry::kWrittenBack:
      return WrittenBackEntry{{from.written_back().revision()}};
    case wire::LogEntry::kApplied:
      return AppliedEntry{{from.applied().revision()}};
    case wire::LogEntry::ENTRY_NOT_SET:
      break;
  }
  return tl::unexpected(std::string("an unknown entry of the decision log"));
}

void write(const Introduction& from, wire::Introduction& to) {
  to.set_launch_id(from.launch_id);
  to.set_rank(from.rank.value);
  to.set_world_size(from.world_size);
  to.set_output_dir(from.output_dir);
  to.set_endpoint(from.endpoint);
  to.set_keys(from.keys);
  to.set_insecure_loopback(from.insecure_loopback);
  if (from.several_hosts) to.set_hosts(*from.several_hosts ? 2 : 1);
  to.set_master(from.master_addr);
  to.set_store(from.has_store);
  if (!from.lead_job) return;
  wire::LeadJob& lead = *to.mutable_lead();
  lead.set_config_path(from.lead_job->config_path);
  lead.set_dynamic(from.lead_job->dynamic);
  lead.set_static_text(from.lead_job->static_text);
  lead.set_torch(from.lead_job->torch);
  for (const std::string& hook : from.lead_job->hooks) lead.add_hooks(hook);
  lead.set_name(from.lead_job->name);
}

Introduction read_introduction(const wire::Introduction& from) {
  Introduction to;
  to.launch_id = from.launch_id();
  to.rank = {from.rank()};
  to.world_size = from.world_size();
  to.output_dir = from.output_dir();
  to.endpoint = from.endpoint();
  to.keys = from.keys();
  to.insecure_loopback = from.insecure_loopback();
  if (from.hosts() != 0) to.several_hosts = from.hosts() > 1;
  to.master_addr = from.master();
  to.has_store = from.store();
  if (!from.has_lead()) return to;
  LeadJob lead;
  lead.config_path = from.lead().config_path();
  lead.dynamic = from.lead().dynamic();
  lead.static_text = from.lead().static_text();
  lead.torch = from.lead().torch();
  lead.hooks.assign(from.lead().hooks().begin(), from.lead().hooks().end());
  lead.name = from.lead().name();
  to.lead_job = std::move(lead);
  return to;
}

void write(const TargetCounts& from, wire::TargetCounts& to) {
  to.set_watched(from.watched);
  to.set_silent(from.silent);
  to.set_unmatched(from.unmatched);
}

TargetCounts read_counts(const wire::TargetCounts& from) {
  return {from.watched(), from.silent(), from.unmatched()};
}

void write(const TargetList& from, wire::TargetList& to) {
  write(from.counts, *to.mutable_counts());
  for (const UnmatchedTarget& entry : from.unmatched) {
    wire::UnmatchedTarget& out = *to.add_unmatched();
    out.set_pattern(entry.pattern);
    out.set_error(entry.error);
    for (const std::string& name : entry.nearest) out.add_nearest(name);
  }
  for (const TargetStatus& target : from.targets) {
    wire::TargetStatus& out = *to.add_targets();
    out.set_kind(target.kind);
    out.set_name(target.name);
    out.set_last_step(target.last_step);
    out.set_last_at(target.last_at);
    out.set_silent_steps(target.silent_steps);
    out.set_why(target.why);
  }
  to.set_left_out(from.left_out);
  for (const std::string& line : from.attached) to.add_attached(line);
}

TargetList read_targets(const wire::TargetList& from) {
  TargetList to;
  to.counts = read_counts(from.counts());
  for (const wire::UnmatchedTarget& in : from.unmatched()) {
    to.unmatched.push_back({in.pattern(), {in.nearest().begin(), in.nearest().end()}, in.error()});
  }
  for (const wire::TargetStatus& in : from.targets()) {
    to.targets.push_back({in.kind(), in.name(), in.last_step(), in.last_at(), in.silent_steps(), in.why()});
  }
  to.left_out = from.left_out();
  to.attached = {from.attached().begin(), from.attached().end()};
  return to;
}

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
