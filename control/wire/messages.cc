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

FieldTable<At<1, &Overhead::revision>, At<2, &Overhead::collected>, At<3, &Overhead::share>,
           At<4, &Overhead::steps>>
fields(const Overhead*);
FieldTable<At<1, &TargetCounts::watched>, At<2, &TargetCounts::silent>, At<3, &TargetCounts::unmatched>>
fields(const TargetCounts*);
FieldTable<At<1, &AgreeingRanks::agreeing>, At<2, &AgreeingRanks::counted>, At<3, &AgreeingRanks::dropped>,
           At<4, &AgreeingRanks::ended>, At<5, &AgreeingRanks::waited_ms>,
           At<6, &AgreeingRanks::rows_dropped>>
fields(const AgreeingRanks*);
FieldTable<At<1, &ReplicasCompared::groups>, At<2, &ReplicasCompared::ranks>,
           At<3, &ReplicasCompared::last_step>, At<4, &ReplicasCompared::comparisons>,
           At<5, &ReplicasCompared::incomplete>, At<6, &ReplicasCompared::unresolved>,
           At<7, &ReplicasCompared::not_compared>>
fields(const ReplicasCompared*);

template <>
struct NumberedFields<RankStatus> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.rank);
    visit(2, self.host);
    visit(3, self.pid);
    visit(4, self.step);
    visit(5, self.revision);
    visit(6, self.applied_step);
    visit(7, self.state);
    visit(9, self.last_seen_ms);
    visit(10, self.last_stepped_ms);
    visit(16, self.accepted);
    visit(19, self.listed_alerts);
    each_report_field([&](const char*, std::uint32_t in_status, std::uint32_t, auto member) {
      visit(in_status, self.*member);
    });
  }
};

FieldTable<At<1, &Pending::revision>, At<2, &Pending::reason>, At<3, &Pending::since>> fields(const Pending*);
FieldTable<At<1, &LastError::at>, At<2, &LastError::text>, At<3, &LastError::count>> fields(const LastError*);
FieldTable<At<1, &Status::epoch>, At<2, &Status::mode>, At<3, &Status::state>, At<4, &Status::reason>,
           At<5, &Status::revision>, At<6, &Status::effective_step>, At<7, &Status::pending>,
           At<8, &Status::collected>, At<9, &Status::collect_times>, At<10, &Status::step_interval>,
           At<11, &Status::config_path>, At<12, &Status::config_sha256>, At<13, &Status::last_error>,
           At<14, &Status::warnings>, At<15, &Status::ranks>, At<17, &Status::torch>, At<18, &Status::hooks>,
           At<19, &Status::output_dir>, At<20, &Status::launch_id>, At<21, &Status::name>,
           At<22, &Status::started>, At<25, &Status::alerts_endpoint>, At<26, &Status::replicas_compared>,
           At<27, &Status::unlisted>>
fields(const Status*);

// Plans and verdicts.

FieldTable<At<1, &FileIdentity::mtime_ns>, At<2, &FileIdentity::size>, At<3, &FileIdentity::sha256>> fields(
    const FileIdentity*);

template <>
struct NumberedFields<Plan>
    : FieldTable<At<1, &Plan::on>, At<2, &Plan::config_text>, At<3, &Plan::config_sha256>,
                 At<4, &Plan::collect_times>, At<5, &Plan::step_interval>, At<6, &Plan::at>,
                 At<7, &Plan::continues>, At<8, &Plan::file>, At<9, &Plan::cause>, At<10, &Plan::by>,
                 At<11, &Plan::request_id>, At<12, &Plan::lookahead>, At<15, &Plan::max_overhead>,
                 At<16, &Plan::max_wait>, At<17, &Plan::returns_to>> {
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
struct NumberedFields<Verdict>
    : FieldTable<At<1, &Verdict::revision>, At<2, &Verdict::plan>, At<3, &Verdict::effective>,
                 At<4, &Verdict::abort_reason>, At<5, &Verdict::reason>> {
  static const char* check(const Verdict& verdict) {
    return verdict.abort_reason > AbortReason::not_logged ? "a verdict with an unknown reason" : nullptr;
  }
};

template <>
struct NumberedFields<KnownDecisions>
    : FieldTable<At<1, &KnownDecisions::closed>, At<2, &KnownDecisions::commit>> {
  static const char* check(const KnownDecisions& known) {
    return known.commit && !known.commit->commit() ? kAbortNotCommit : nullptr;
  }
};

// Member to coordinator.

template <>
struct NumberedFields<Hello>
    : FieldTable<At<1, &Hello::launch_id>, At<2, &Hello::world_size>, At<3, &Hello::host>, At<4, &Hello::pid>,
                 At<6, &Hello::process_id>, At<7, &Hello::start_iteration>, At<8, &Hello::version>,
                 At<9, &Hello::number>, At<10, &Hello::step>, At<11, &Hello::lapsed>,
                 At<12, &Hello::held_epoch>, At<13, &Hello::held>, At<14, &Hello::epoch_order>> {
  static const char* check(const Hello& hello) {
    return hello.held && !hello.held->commit() ? kAbortNotCommit : nullptr;
  }
};

FieldTable<At<1, &Offered::revision>, At<2, &Offered::config_sha256>, At<3, &Offered::matches>,
           At<4, &Offered::unmatched>>
fields(const Offered*);
FieldTable<At<1, &Ready::revision>, At<3, &Ready::config_sha256>, At<5, &Ready::fence>> fields(const Ready*);
FieldTable<At<1, &Busy::revision>, At<2, &Busy::reason>> fields(const Busy*);
FieldTable<At<1, &Reject::revision>, At<2, &Reject::reason>> fields(const Reject*);
FieldTable<At<1, &Applied::revision>, At<2, &Applied::step>> fields(const Applied*);
FieldTable<At<1, &Finished::revision>> fields(const Finished*);

template <>
struct NumberedFields<Progress> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.step);
    visit(3, self.collecting);
    visit(4, self.waiting);
    visit(8, self.closed);
    visit(9, self.applied);
    visit(10, self.applied_step);
    visit(11, self.finished);
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
FieldTable<At<1, &UnmatchedTarget::pattern>, At<2, &UnmatchedTarget::nearest>, At<3, &UnmatchedTarget::error>>
fields(const UnmatchedTarget*);
FieldTable<At<1, &TargetStatus::kind>, At<2, &TargetStatus::name>, At<3, &TargetStatus::last_step>,
           At<4, &TargetStatus::last_at>, At<5, &TargetStatus::silent_steps>, At<6, &TargetStatus::why>>
fields(const TargetStatus*);
FieldTable<At<1, &TargetList::counts>, At<2, &TargetList::unmatched>, At<3, &TargetList::targets>,
           At<4, &TargetList::left_out>, At<5, &TargetList::attached>>
fields(const TargetList*);
FieldTable<At<1, &DryRunAnswer::id>, At<2, &DryRunAnswer::matches>, At<3, &DryRunAnswer::objection>,
           At<4, &DryRunAnswer::targets>>
fields(const DryRunAnswer*);

// Coordinator to member.

FieldTable<At<1, &Welcome::process_id>, At<2, &Welcome::incarnation>, At<3, &Welcome::refused>,
           At<4, &Welcome::retry>, At<6, &Welcome::epoch_starts_on>, At<7, &Welcome::run_id>,
           At<8, &Welcome::started>, At<10, &Welcome::last>, At<11, &Welcome::number>,
           At<12, &Welcome::epoch_order>, At<13, &Welcome::takes_alerts>, At<14, &Welcome::takes_replicas>>
fields(const Welcome*);

template <>
struct NumberedFields<Offer> : FieldTable<At<1, &Offer::revision>, At<2, &Offer::plan>> {
  static const char* check(const Offer& offer) { return offer.plan ? nullptr : kNoPlan; }
};

template <>
struct NumberedFields<Prepare> : FieldTable<At<1, &Prepare::revision>, At<4, &Prepare::lookahead>,
                                            At<6, &Prepare::last>, At<7, &Prepare::config_sha256>> {
  static const char* check(const Prepare& prepare) {
    return prepare.lookahead < 1 ? "a lookahead below 1" : nullptr;
  }
};

FieldTable<At<1, &Decided::last>> fields(const Decided*);
FieldTable<At<1, &ProgressAck::number>> fields(const ProgressAck*);
FieldTable<At<1, &DryRun::id>, At<2, &DryRun::plan>, At<3, &DryRun::room>> fields(const DryRun*);

// Alerts, and values that other ranks should hold as well.

template <>
struct NumberedFields<Alert> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    each_alert_field([&](const char*, std::uint32_t number, auto member) { visit(number, self.*member); });
  }
};

template <>
struct NumberedFields<AlertReport> : FieldTable<At<1, &AlertReport::alerts>, At<2, &AlertReport::left_out>> {
};

FieldTable<At<1, &ReplicaDigest::revision>, At<2, &ReplicaDigest::step>, At<3, &ReplicaDigest::kind>,
           At<4, &ReplicaDigest::buckets>>
fields(const ReplicaDigest*);
FieldTable<At<1, &ReplicaDigests::group>, At<2, &ReplicaDigests::group_size>, At<3, &ReplicaDigests::digests>>
fields(const ReplicaDigests*);
FieldTable<At<1, &ReplicaRequest::revision>, At<2, &ReplicaRequest::step>, At<3, &ReplicaRequest::kind>,
           At<4, &ReplicaRequest::bucket>>
fields(const ReplicaRequest*);
FieldTable<At<1, &ReplicaValue::op>, At<2, &ReplicaValue::value>> fields(const ReplicaValue*);
FieldTable<At<1, &ReplicaRow::vpp_stage>, At<2, &ReplicaRow::name>, At<3, &ReplicaRow::values>> fields(
    const ReplicaRow*);
FieldTable<At<1, &ReplicaValues::request>, At<2, &ReplicaValues::group>, At<3, &ReplicaValues::threshold>,
           At<4, &ReplicaValues::rows>>
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

FieldTable<At<1, &LeadJob::config_path>, At<3, &LeadJob::dynamic>, At<4, &LeadJob::static_text>,
           At<5, &LeadJob::torch>, At<6, &LeadJob::hooks>, At<10, &LeadJob::name>>
fields(const LeadJob*);

// 9 is reserved.
FieldTable<At<1, &Introduction::launch_id>, At<2, &Introduction::rank>, At<3, &Introduction::world_size>,
           At<4, &Introduction::lead_job>, At<5, &Introduction::output_dir>, At<6, &Introduction::endpoint>,
           At<7, &Introduction::keys>, At<8, &Introduction::insecure_loopback>,
           At<10, &Introduction::several_hosts>, At<11, &Introduction::master_addr>,
           At<12, &Introduction::has_store>>
fields(const Introduction*);
FieldTable<At<1, &StoreNotes::own_note>, At<2, &StoreNotes::other_notes>> fields(const StoreNotes*);

template <>
struct NumberedFields<HubLogLine> : FieldTable<At<1, &HubLogLine::level>, At<2, &HubLogLine::text>> {
  static const char* check(HubLogLine& line) {
    line.level = std::min(line.level, LogLevel::error);
    return nullptr;
  }
};

// The decision log. 5 of LogEntry is reserved.

template <>
struct NumberedFields<OfferedEntry>
    : FieldTable<At<1, &OfferedEntry::revision>, At<2, &OfferedEntry::plan>, At<3, &OfferedEntry::at>> {
  static const char* check(const OfferedEntry& entry) { return entry.plan ? nullptr : kNoPlan; }
};

FieldTable<At<1, &JoinedEntry::rank>, At<2, &JoinedEntry::incarnation>, At<3, &JoinedEntry::hello>> fields(
    const JoinedEntry*);

template <>
struct NumberedFields<DepartureEntry> : FieldTable<At<1, &DepartureEntry::rank>, At<2, &DepartureEntry::how>,
                                                   At<3, &DepartureEntry::last>, At<4, &DepartureEntry::by>> {
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
    : FieldTable<At<1, &Command::verb>, At<2, &Command::request_id>, At<3, &Command::by>, At<4, &Command::at>,
                 At<5, &Command::collect_times>, At<6, &Command::step_interval>, At<7, &Command::edits>,
                 At<8, &Command::config_text>, At<9, &Command::rank>, At<10, &Command::after>,
                 At<11, &Command::release>, At<12, &Command::force>> {
  static const char* check(Command& command) {
    if (command.verb > CommandVerb::alerts) command.verb = CommandVerb::unknown;
    return nullptr;
  }
};

FieldTable<At<1, &HistoryEntry::revision>, At<2, &HistoryEntry::cause>, At<3, &HistoryEntry::by>,
           At<4, &HistoryEntry::verdict>, At<5, &HistoryEntry::reason>, At<6, &HistoryEntry::on>,
           At<7, &HistoryEntry::proposed_at>, At<8, &HistoryEntry::effective_step>,
           At<9, &HistoryEntry::applied>, At<10, &HistoryEntry::finished_step>,
           At<11, &HistoryEntry::request_id>, At<12, &HistoryEntry::final>>
fields(const HistoryEntry*);
FieldTable<At<1, &DryRunResult::Answer::rank>, At<2, &DryRunResult::Answer::known>,
           At<3, &DryRunResult::Answer::matches>, At<4, &DryRunResult::Answer::objection>,
           At<5, &DryRunResult::Answer::targets>>
fields(const DryRunResult::Answer*);

// 1 is the request id of an AddressedReply.
template <>
struct NumberedFields<CommandReply>
    : FieldTable<At<2, &CommandReply::outcome>, At<3, &CommandReply::message>, At<4, &CommandReply::revision>,
                 At<5, &CommandReply::settled>, At<6, &CommandReply::applied_by_all>,
                 At<7, &CommandReply::effective_step>, At<8, &CommandReply::status>,
                 At<9, &CommandReply::history>, At<10, &CommandReply::config_text>,
                 At<11, &CommandReply::config_before>, At<12, &CommandReply::rank_answers>,
                 At<13, &CommandReply::alerts>, At<14, &CommandReply::raised_alerts>,
                 At<15, &CommandReply::release>, At<16, &CommandReply::collects_nothing>> {
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
tl::expected<Value, std::string> decode_as(const char* what, std::string_view bytes) {
  Value value;
  if (const char* const refusal = field_codec::decode(bytes, value, 0))
    return tl::unexpected(std::string(what) + ": " + refusal);
  return value;
}

}  // namespace

std::string own_release() { return GRADMON_VERSION; }

std::string encode(const Frame& frame) { return field_codec::encode(frame); }

tl::expected<Frame, std::string> decode_frame(std::string_view bytes) {
  return decode_as<Frame>("not a gradmon frame", bytes);
}

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

tl::expected<LogEntry, std::string> decode_log_entry(std::string_view bytes) {
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
