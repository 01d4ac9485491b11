// SPDX-License-Identifier: Apache-2.0
#include "control/wire/messages.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "control/wire/field_codec.h"

namespace gradmon {
namespace {

constexpr const char* kAbortNotCommit = "commit verdict has no plan";
constexpr const char* kNoPlan = "plan is missing";

}  // namespace

// --- The numbers of the fields. A number is never reused. ---

// The state of a job.

FieldTable<At<1, &Overhead::revision, &Overhead::collected, &Overhead::share, &Overhead::steps>> fields(
    const Overhead*);
FieldTable<At<1, &TargetCounts::watched, &TargetCounts::silent, &TargetCounts::unmatched>> fields(
    const TargetCounts*);
FieldTable<At<1, &AgreeingRanks::agreeing, &AgreeingRanks::counted, &AgreeingRanks::dropped,
              &AgreeingRanks::ended, &AgreeingRanks::waited_ms, &AgreeingRanks::rows_dropped>>
fields(const AgreeingRanks*);
FieldTable<At<1, &ReplicasCompared::groups, &ReplicasCompared::ranks, &ReplicasCompared::last_step,
              &ReplicasCompared::comparisons, &ReplicasCompared::incomplete, &ReplicasCompared::unresolved,
              &ReplicasCompared::not_compared>>
fields(const ReplicasCompared*);

template <>
struct NumberedFields<RankStatus> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    FieldTable<At<1, &RankStatus::rank, &RankStatus::host, &RankStatus::pid, &RankStatus::step,
                  &RankStatus::revision, &RankStatus::applied_step, &RankStatus::state>,
               At<9, &RankStatus::last_seen_ms, &RankStatus::last_stepped_ms>, At<16, &RankStatus::accepted>,
               At<19, &RankStatus::listed_alerts>>::each_field(self, visit);
    each_report_field([&](const char*, std::uint32_t in_status, std::uint32_t, auto member) {
      visit(in_status, self.*member);
    });
  }
};

FieldTable<At<1, &Pending::revision, &Pending::reason, &Pending::since>> fields(const Pending*);
FieldTable<At<1, &LastError::at, &LastError::text, &LastError::count>> fields(const LastError*);
FieldTable<At<1, &Status::epoch, &Status::mode, &Status::state, &Status::reason, &Status::revision,
              &Status::effective_step, &Status::pending, &Status::collected, &Status::collect_times,
              &Status::step_interval, &Status::config_path, &Status::config_sha256, &Status::last_error,
              &Status::warnings, &Status::ranks>,
           At<17, &Status::torch, &Status::hooks, &Status::output_dir, &Status::launch_id, &Status::name,
              &Status::started>,
           At<25, &Status::alerts_endpoint, &Status::replicas_compared, &Status::unlisted>>
fields(const Status*);

// Plans and verdicts.

FieldTable<At<1, &FileIdentity::mtime_ns, &FileIdentity::size, &FileIdentity::sha256>> fields(
    const FileIdentity*);

template <>
struct NumberedFields<Plan>
    : FieldTable<At<1, &Plan::on, &Plan::config_text, &Plan::config_sha256, &Plan::collect_times,
                    &Plan::step_interval, &Plan::at, &Plan::continues, &Plan::file, &Plan::cause, &Plan::by,
                    &Plan::request_id, &Plan::lookahead>,
                 At<15, &Plan::max_overhead, &Plan::max_wait, &Plan::returns_to>> {
  static const char* check(const Plan& plan) {
    const bool in_range =
        plan.collect_times >= 0 && plan.step_interval >= 1 && plan.max_wait > Ticks{0} &&
        plan.cause <= Cause::budget && plan.lookahead.value_or(1) >= 1 && plan.max_overhead.value_or(1) > 0 &&
        (!plan.continues || (plan.continues->interval() >= 1 && plan.continues->times() >= 0));
    if (!in_range) return "plan has a value out of range";
    return plan.returns_to && plan.returns_to->returns_to ? "a plan returns to a capture" : nullptr;
  }
};

template <>
struct NumberedFields<Verdict> : FieldTable<At<1, &Verdict::revision, &Verdict::plan, &Verdict::effective,
                                               &Verdict::abort_reason, &Verdict::reason>> {
  static const char* check(const Verdict& verdict) {
    return verdict.abort_reason > AbortReason::not_logged ? "a verdict with an unknown reason" : nullptr;
  }
};

template <>
struct NumberedFields<KnownDecisions> : FieldTable<At<1, &KnownDecisions::closed, &KnownDecisions::commit>> {
  static const char* check(const KnownDecisions& known) {
    return known.commit && !known.commit->commit() ? kAbortNotCommit : nullptr;
  }
};

// Member to coordinator.

template <>
struct NumberedFields<Hello>
    : FieldTable<At<1, &Hello::launch_id, &Hello::world_size, &Hello::host, &Hello::pid>,
                 At<6, &Hello::process_id, &Hello::start_iteration, &Hello::version, &Hello::number,
                    &Hello::step, &Hello::lapsed, &Hello::held_epoch, &Hello::held, &Hello::epoch_order>> {
  static const char* check(const Hello& hello) {
    return hello.held && !hello.held->commit() ? kAbortNotCommit : nullptr;
  }
};

FieldTable<At<1, &Offered::revision, &Offered::config_sha256, &Offered::matches, &Offered::unmatched>> fields(
    const Offered*);
FieldTable<At<1, &Ready::revision>, At<3, &Ready::config_sha256>, At<5, &Ready::fence>> fields(const Ready*);
FieldTable<At<1, &Busy::revision, &Busy::reason>> fields(const Busy*);
FieldTable<At<1, &Reject::revision, &Reject::reason>> fields(const Reject*);
FieldTable<At<1, &Applied::revision, &Applied::step>> fields(const Applied*);
FieldTable<At<1, &Finished::revision>> fields(const Finished*);

template <>
struct NumberedFields<Progress> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    FieldTable<At<1, &Progress::step>, At<3, &Progress::collecting, &Progress::waiting>,
               At<8, &Progress::closed, &Progress::applied, &Progress::applied_step,
                  &Progress::finished>>::each_field(self, visit);
    visit(18, self.skipped.count);
    visit(19, self.skipped.last);
    visit(20, self.number);
    visit(22, self.warnings);
    each_report_field([&](const char*, std::uint32_t, std::uint32_t in_progress, auto member) {
      visit(in_progress, self.*member);
    });
  }
  // Makes an impossible overhead or step time unknown.
  static const char* check(Progress& progress) {
    const auto possible = [](double value) { return std::isfinite(value) && value >= 0; };
    if (!possible(progress.step_ms)) progress.step_ms = 0;
    const Overhead& overhead = progress.overhead;
    if (!possible(overhead.share) || overhead.collected < 0 || overhead.steps < 0) progress.overhead = {};
    return nullptr;
  }
};

FieldTable<At<1, &Left::last>> fields(const Left*);
FieldTable<At<1, &UnmatchedTarget::pattern, &UnmatchedTarget::nearest, &UnmatchedTarget::error>> fields(
    const UnmatchedTarget*);
FieldTable<At<1, &TargetStatus::kind, &TargetStatus::name, &TargetStatus::last_step, &TargetStatus::last_at,
              &TargetStatus::silent_steps, &TargetStatus::why>>
fields(const TargetStatus*);
FieldTable<At<1, &TargetList::counts, &TargetList::unmatched, &TargetList::targets, &TargetList::left_out,
              &TargetList::attached>>
fields(const TargetList*);
FieldTable<At<1, &DryRunAnswer::id, &DryRunAnswer::matches, &DryRunAnswer::objection, &DryRunAnswer::targets>>
fields(const DryRunAnswer*);

// Coordinator to member.

FieldTable<At<1, &Welcome::process_id, &Welcome::incarnation, &Welcome::refused, &Welcome::retry>,
           At<6, &Welcome::epoch_starts_on, &Welcome::run_id, &Welcome::started>,
           At<10, &Welcome::last, &Welcome::number, &Welcome::epoch_order, &Welcome::takes_alerts,
              &Welcome::takes_replicas>>
fields(const Welcome*);

template <>
struct NumberedFields<Offer> : FieldTable<At<1, &Offer::revision, &Offer::plan>> {
  static const char* check(const Offer& offer) { return offer.plan ? nullptr : kNoPlan; }
};

template <>
struct NumberedFields<Prepare> : FieldTable<At<1, &Prepare::revision>, At<4, &Prepare::lookahead>,
                                            At<6, &Prepare::last, &Prepare::config_sha256>> {
  static const char* check(const Prepare& prepare) {
    return prepare.lookahead < 1 ? "a lookahead below 1" : nullptr;
  }
};

FieldTable<At<1, &Decided::last>> fields(const Decided*);
FieldTable<At<1, &ProgressAck::number>> fields(const ProgressAck*);
FieldTable<At<1, &DryRun::id, &DryRun::plan, &DryRun::room>> fields(const DryRun*);

// Alerts, and values that other ranks should hold as well.

template <>
struct NumberedFields<Alert> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    each_alert_field([&](const char*, std::uint32_t number, auto member) { visit(number, self.*member); });
  }
};

template <>
struct NumberedFields<AlertReport> : FieldTable<At<1, &AlertReport::alerts, &AlertReport::left_out>> {};

FieldTable<
    At<1, &ReplicaDigest::revision, &ReplicaDigest::step, &ReplicaDigest::kind, &ReplicaDigest::buckets>>
fields(const ReplicaDigest*);
FieldTable<At<1, &ReplicaDigests::group, &ReplicaDigests::group_size, &ReplicaDigests::digests>> fields(
    const ReplicaDigests*);
FieldTable<
    At<1, &ReplicaRequest::revision, &ReplicaRequest::step, &ReplicaRequest::kind, &ReplicaRequest::bucket>>
fields(const ReplicaRequest*);
FieldTable<At<1, &ReplicaValue::op, &ReplicaValue::value>> fields(const ReplicaValue*);
FieldTable<At<1, &ReplicaRow::vpp_stage, &ReplicaRow::name, &ReplicaRow::values>> fields(const ReplicaRow*);
FieldTable<
    At<1, &ReplicaValues::request, &ReplicaValues::group, &ReplicaValues::threshold, &ReplicaValues::rows>>
fields(const ReplicaValues*);

// Messages with their addresses.

using MessageCases =
    OneOf<Case<10, Hello>, Case<11, Offered>, Case<12, Ready>, Case<13, Reject>, Case<14, Applied>,
          Case<15, Finished>, Case<16, Busy>, Case<17, Progress>, Case<18, Left>, Case<19, Welcome>,
          Case<20, Prepare>, Case<21, LeftAck>, Case<22, Replaced>, Case<23, RejoinRequest>,
          Case<24, Decided>, Case<25, Disconnected>, Case<26, DryRunAnswer>, Case<27, Offer>,
          Case<28, DryRun>, Case<29, ProgressAck>, Case<30, AlertReport>, Case<31, ReplicaDigests>,
          Case<32, ReplicaRequest>, Case<33, ReplicaValues>>;

template <>
struct NumberedFields<Bundle> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.epoch);
    visit(2, self.to);
    visit(MessageCases{}, self.message);
  }
  // Cuts an AlertReport to its bounds.
  static const char* check(Bundle& bundle) {
    Message& message = bundle.message;
    if (auto* const report = std::get_if<AlertReport>(&message)) *report = bounded(std::move(*report));
    if (const auto* m = std::get_if<ReplicaDigests>(&message); m && !is_valid(*m))
      return "invalid replica digests";
    if (const auto* m = std::get_if<ReplicaRequest>(&message); m && !is_valid(*m))
      return "invalid replica request";
    if (const auto* m = std::get_if<ReplicaValues>(&message); m && !is_valid(*m))
      return "invalid replica values";
    return nullptr;
  }
};

template <>
struct NumberedFields<Bundles> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self);
  }
};

// From a rank to its hub, and back.

FieldTable<At<1, &LeadJob::config_path>,
           At<3, &LeadJob::dynamic, &LeadJob::static_text, &LeadJob::torch, &LeadJob::hooks>,
           At<10, &LeadJob::name>>
fields(const LeadJob*);

// 9 is reserved.
FieldTable<At<1, &Introduction::launch_id, &Introduction::rank, &Introduction::world_size,
              &Introduction::lead_job, &Introduction::output_dir, &Introduction::endpoint,
              &Introduction::keys, &Introduction::insecure_loopback>,
           At<10, &Introduction::several_hosts, &Introduction::master_addr, &Introduction::has_store>>
fields(const Introduction*);
FieldTable<At<1, &StoreNotes::own_note, &StoreNotes::other_notes>> fields(const StoreNotes*);

template <>
struct NumberedFields<HubLogLine> : FieldTable<At<1, &HubLogLine::level, &HubLogLine::text>> {
  static const char* check(HubLogLine& line) {
    line.level = std::min(line.level, LogLevel::error);
    return nullptr;
  }
};

// The decision log. 5 of LogEntry is reserved.

template <>
struct NumberedFields<OfferedEntry>
    : FieldTable<At<1, &OfferedEntry::revision, &OfferedEntry::plan, &OfferedEntry::at>> {
  static const char* check(const OfferedEntry& entry) { return entry.plan ? nullptr : kNoPlan; }
};

FieldTable<At<1, &JoinedEntry::rank, &JoinedEntry::incarnation, &JoinedEntry::hello>> fields(
    const JoinedEntry*);

template <>
struct NumberedFields<DepartureEntry>
    : FieldTable<
          At<1, &DepartureEntry::rank, &DepartureEntry::how, &DepartureEntry::last, &DepartureEntry::by>> {
  static const char* check(const DepartureEntry& entry) {
    return entry.how > DepartureEntry::How::evicted ? "an unknown departure" : nullptr;
  }
};

FieldTable<At<1, &WrittenBackEntry::revision>> fields(const WrittenBackEntry*);
FieldTable<At<1, &AppliedEntry::revision>> fields(const AppliedEntry*);

template <>
struct NumberedFields<LogEntry> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(OneOf<Case<1, OfferedEntry>, Case<2, Verdict>, Case<3, JoinedEntry>, Case<4, DepartureEntry>,
                Case<6, WrittenBackEntry>, Case<7, AppliedEntry>>{},
          self);
  }
};

// Commands and replies.

template <>
struct NumberedFields<Command>
    : FieldTable<At<1, &Command::verb, &Command::request_id, &Command::by, &Command::at,
                    &Command::collect_times, &Command::step_interval, &Command::edits, &Command::config_text,
                    &Command::rank, &Command::after, &Command::release, &Command::force>> {
  static const char* check(Command& command) {
    if (command.verb > CommandVerb::alerts) command.verb = CommandVerb::unknown;
    return nullptr;
  }
};

FieldTable<
    At<1, &HistoryEntry::revision, &HistoryEntry::cause, &HistoryEntry::by, &HistoryEntry::verdict,
       &HistoryEntry::reason, &HistoryEntry::on, &HistoryEntry::proposed_at, &HistoryEntry::effective_step,
       &HistoryEntry::applied, &HistoryEntry::finished_step, &HistoryEntry::request_id, &HistoryEntry::final>>
fields(const HistoryEntry*);
FieldTable<At<1, &DryRunResult::Answer::rank, &DryRunResult::Answer::known, &DryRunResult::Answer::matches,
              &DryRunResult::Answer::objection, &DryRunResult::Answer::targets>>
fields(const DryRunResult::Answer*);

// 1 is the request id of an AddressedReply.
template <>
struct NumberedFields<CommandReply>
    : FieldTable<At<2, &CommandReply::outcome, &CommandReply::message, &CommandReply::revision,
                    &CommandReply::settled, &CommandReply::applied_by_all, &CommandReply::effective_step,
                    &CommandReply::status, &CommandReply::history, &CommandReply::config_text,
                    &CommandReply::config_before, &CommandReply::rank_answers, &CommandReply::alerts,
                    &CommandReply::raised_alerts, &CommandReply::release, &CommandReply::collects_nothing>> {
  // An unknown outcome is a failure.
  static const char* check(CommandReply& reply) {
    const auto known = {CommandOutcome::done, CommandOutcome::no_lead, CommandOutcome::not_allowed,
                        CommandOutcome::invalid_config, CommandOutcome::incomplete};
    if (std::find(known.begin(), known.end(), reply.outcome) == known.end())
      reply.outcome = CommandOutcome::failed;
    return nullptr;
  }
};

template <>
struct NumberedFields<AddressedReply> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.request_id);
    NumberedFields<CommandReply>::each_field(self.reply, visit);
  }
  static const char* check(AddressedReply& addressed) {
    return NumberedFields<CommandReply>::check(addressed.reply);
  }
};

template <>
struct NumberedFields<Frame> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(OneOf<Case<1, Bundles>, Case<2, Command>, Case<3, AddressedReply>, Case<4, Status>,
                Case<5, Introduction>, Case<6, HubLogLine>, Case<7, StoreNotes>>{},
          self);
  }
};

namespace {

template <typename Value>
Result<Value> decode_as(const char* what, std::string_view bytes) {
  Value value;
  if (const char* const refusal = field_codec::decode(bytes, value, 0))
    return tl::unexpected(std::string(what) + ": " + refusal);
  return value;
}

}  // namespace

std::string own_release() { return GRADMON_VERSION; }

std::string encode(const Frame& frame) { return field_codec::encode(frame); }

Result<Frame> decode_frame(std::string_view bytes) { return decode_as<Frame>("not a gradmon frame", bytes); }

std::vector<std::string> encode_bundles(Bundles bundles) {
  if (bundles.empty()) return {};
  std::string frame = encode(Frame(bundles));
  if (frame.size() <= kMaxFrameBytes || bundles.size() < 2) return {std::move(frame)};
  const auto middle = bundles.begin() + static_cast<std::ptrdiff_t>(bundles.size() / 2);
  std::vector<std::string> frames =
      encode_bundles({std::make_move_iterator(bundles.begin()), std::make_move_iterator(middle)});
  for (std::string& rest :
       encode_bundles({std::make_move_iterator(middle), std::make_move_iterator(bundles.end())}))
    frames.push_back(std::move(rest));
  return frames;
}

std::string encode(const LogEntry& entry) { return field_codec::encode(entry); }

Result<LogEntry> decode_log_entry(std::string_view bytes) {
  return decode_as<LogEntry>("not an entry of the decision log", bytes);
}

Bundle to_bundle(Envelope envelope) {
  return {
      std::move(envelope.epoch), {{envelope.rank.value, envelope.incarnation}}, std::move(envelope.message)};
}

std::vector<Envelope> to_envelopes(Bundle bundle) {
  std::vector<Envelope> all;
  for (const auto& [rank, incarnation] : bundle.to)
    all.push_back({bundle.epoch, Rank{rank}, incarnation, bundle.message});
  return all;
}

}  // namespace gradmon
