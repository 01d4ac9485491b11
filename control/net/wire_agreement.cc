// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "control/net/wire_values.h"

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
  to.set_fence_timeout_ms(from.fence_timeout.count());
  to.set_wait_on_partition(from.wait_on_partition);
  if (from.max_overhead) to.set_max_overhead(*from.max_overhead);
}

tl::expected<PlanPtr, std::string> read_plan(const wire::Plan& from) {
  const bool sane =
      from.collect_times() >= 0 && from.step_interval() >= 1 && from.fence_timeout_ms() > 0 &&
      from.cause() <= static_cast<std::uint32_t>(Cause::budget) &&
      (!from.has_lookahead() || from.lookahead() >= 1) &&
      (!from.has_max_overhead() || from.max_overhead() > 0) &&
      (!from.has_continues() || (from.continues().interval() >= 1 && from.continues().times() >= 0));
  if (!sane) return tl::unexpected(std::string("a plan with numbers out of range"));
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
  plan->fence_timeout = Ticks{from.fence_timeout_ms()};
  plan->wait_on_partition = from.wait_on_partition();
  if (from.has_max_overhead()) plan->max_overhead = from.max_overhead();
  return plan;
}

}  // namespace

void write(const Verdict& from, wire::Verdict& to) {
  to.set_revision(from.revision.value);
  if (from.plan) write(*from.plan, *to.mutable_plan());
  to.set_effective(from.effective.value);
  to.set_abort_reason(static_cast<std::uint32_t>(from.abort_reason));
  to.set_reason(from.reason);
  to.set_author(from.author);
}

tl::expected<Verdict, std::string> read_verdict(const wire::Verdict& from) {
  Verdict to;
  to.revision = {from.revision()};
  if (from.has_plan()) {
    auto plan = read_plan(from.plan());
    if (!plan) return tl::unexpected(plan.error());
    to.plan = std::move(*plan);
  }
  if (from.abort_reason() > static_cast<std::uint32_t>(AbortReason::came_back)) {
    return tl::unexpected(std::string("a verdict with an unknown reason"));
  }
  to.effective = {from.effective()};
  to.abort_reason = static_cast<AbortReason>(from.abort_reason());
  to.reason = from.reason();
  to.author = from.author();
  return to;
}

void write(const LastWord& from, wire::LastWord& to) {
  to.set_closed(from.closed.value);
  if (from.commit) write(*from.commit, *to.mutable_commit());
  to.set_home(static_cast<std::uint32_t>(from.home));
}

tl::expected<LastWord, std::string> read_last_word(const wire::LastWord& from) {
  LastWord to;
  to.closed = {from.closed()};
  if (from.has_commit()) {
    auto commit = read_verdict(from.commit());
    if (!commit) return tl::unexpected(commit.error());
    if (!commit->commit()) return tl::unexpected(std::string("a commit without its plan"));
    to.commit = std::move(*commit);
  }
  if (from.home() > static_cast<std::uint32_t>(Home::store)) {
    return tl::unexpected(std::string("a register in an unknown home"));
  }
  to.home = static_cast<Home>(from.home());
  return to;
}

void write(const Hello& from, wire::Hello& to) {
  to.set_launcher_id(from.launcher_id);
  to.set_world_size(from.world_size);
  to.set_host(from.host);
  to.set_pid(from.pid);
  to.set_process_start(from.process_start);
  to.set_process_id(from.process_id);
  to.set_start_iteration(from.start_iteration.value);
  to.set_version(from.version);
}

Hello read_hello(const wire::Hello& from) {
  return {from.launcher_id(), from.world_size(),        from.host(),   from.pid(), from.process_start(),
          from.process_id(),  {from.start_iteration()}, from.version()};
}

void write(const Joined& from, wire::Joined& to) {
  to.set_shares_directory(from.shares_directory);
  to.set_shares_store(from.shares_store);
  to.set_reason(from.reason);
}

void write(const Ready& from, wire::Ready& to) {
  to.set_revision(from.revision.value);
  to.set_proposer(from.proposer);
  to.set_config_sha256(from.config_sha256);
  to.set_matches(from.matches);
  to.set_fence(from.fence.value);
  to.set_unmatched(from.unmatched);
}

Ready read_ready(const wire::Ready& from) {
  return {{from.revision()}, from.proposer(), from.config_sha256(),
          from.matches(),    {from.fence()},  from.unmatched()};
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

// A stranger's: what is no share of a time is one that is not known.
Overhead read_overhead(const wire::Overhead& from) {
  if (!(from.share() >= 0) || from.collected() < 0) return {};
  return {{from.revision()}, from.collected(), from.share(), from.steps()};
}

void write(const Progress& from, wire::Progress& to) {
  to.set_step(from.step.value);
  to.set_step_ms(from.step_ms);
  to.set_collecting(from.collecting);
  to.set_waiting(from.waiting);
  to.set_records(from.records);
  to.set_dropped(from.dropped);
  to.set_shares_directory(from.shares_directory);
  to.set_shares_store(from.shares_store);
  to.set_home(static_cast<std::uint32_t>(from.home));
  to.set_closed(from.closed.value);
  to.set_applied(from.applied.value);
  to.set_applied_step(from.applied_step.value);
  to.set_finished(from.finished.value);
  to.set_missed(from.missed.value);
  to.set_error(from.error);
  write(from.overhead, *to.mutable_overhead());
  write(from.targets, *to.mutable_targets());
  to.set_skipped_updates(from.skipped.count);
  to.set_last_skipped(from.skipped.last.value);
}

Progress read_progress(const wire::Progress& from) {
  Progress to;
  to.step = {from.step()};
  to.step_ms = from.step_ms();
  to.collecting = from.collecting();
  to.waiting = from.waiting();
  to.records = from.records();
  to.dropped = from.dropped();
  to.shares_directory = from.shares_directory();
  to.shares_store = from.shares_store();
  if (from.home() <= static_cast<std::uint32_t>(Home::store)) to.home = static_cast<Home>(from.home());
  to.closed = {from.closed()};
  to.applied = {from.applied()};
  to.applied_step = {from.applied_step()};
  to.finished = {from.finished()};
  to.missed = {from.missed()};
  to.error = from.error();
  to.overhead = read_overhead(from.overhead());
  to.targets = read_counts(from.targets());
  to.skipped = {from.skipped_updates(), {from.last_skipped()}};
  return to;
}

void write(const Probed& from, wire::Probed& to) {
  to.set_id(from.id);
  to.set_matches(from.matches);
  to.set_objection(from.objection);
  write(from.targets, *to.mutable_targets());
}

void write(const Probe& from, wire::Probe& to) {
  to.set_id(from.id);
  if (from.plan) write(*from.plan, *to.mutable_plan());
  to.set_room(static_cast<std::uint32_t>(from.room));
}

tl::expected<Probe, std::string> read_probe(const wire::Probe& from) {
  if (!from.has_plan()) return Probe{from.id(), nullptr, from.room()};
  return read_plan(from.plan()).map([&](PlanPtr plan) {
    return Probe{from.id(), std::move(plan), from.room()};
  });
}

void write(const Welcome& from, wire::Welcome& to) {
  to.set_process_id(from.process_id);
  to.set_incarnation(from.incarnation);
  to.set_refused(from.refused);
  to.set_again(from.again);
  to.set_rejoined(from.rejoined);
  to.set_starts_on(from.starts_on);
  to.set_run_id(from.run_id);
  to.set_started(from.started);
  to.set_nonce(from.nonce);
  write(from.last, *to.mutable_last());
}

tl::expected<Welcome, std::string> read_welcome(const wire::Welcome& from) {
  auto last = read_last_word(from.last());
  if (!last) return tl::unexpected(last.error());
  return Welcome{from.process_id(), from.incarnation(), from.refused(), from.again(), from.rejoined(),
                 from.starts_on(),  from.run_id(),      from.started(), from.nonce(), std::move(*last)};
}

void write(const Prepare& from, wire::Prepare& to) {
  to.set_revision(from.revision.value);
  to.set_proposer(from.proposer);
  write(*from.plan, *to.mutable_plan());
  to.set_lookahead(from.lookahead);
  to.set_doubt_after_ms(from.doubt_after.count());
  write(from.last, *to.mutable_last());
}

tl::expected<Prepare, std::string> read_prepare(const wire::Prepare& from) {
  auto plan = read_plan(from.plan());
  auto last = read_last_word(from.last());
  if (!plan) return tl::unexpected(plan.error());
  if (!last) return tl::unexpected(last.error());
  if (from.lookahead() < 1) return tl::unexpected(std::string("a lookahead below 1"));
  return Prepare{
      {from.revision()}, from.proposer(), std::move(*plan), from.lookahead(), Ticks{from.doubt_after_ms()},
      std::move(*last)};
}

}  // namespace gradmon
