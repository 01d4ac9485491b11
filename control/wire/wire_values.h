// SPDX-License-Identifier: Apache-2.0
// Conversions between our values and protobuf messages. Only for the .cc files of this folder.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "control/agree/decision_log.h"
#include "control/agree/journal.h"
#include "control/agree/message.h"
#include "control/wire/command.h"
#include "control/wire/messages.h"
#include "control/wire/wire.pb.h"

namespace gradmon {

void write(const Verdict& from, wire::Verdict& to);
void write(const KnownDecisions& from, wire::KnownDecisions& to);
void write(const Hello& from, wire::Hello& to);
void write(const Offered& from, wire::Offered& to);
void write(const Busy& from, wire::Busy& to);
void write(const Ready& from, wire::Ready& to);
void write(const Reject& from, wire::Reject& to);
void write(const Applied& from, wire::Applied& to);
void write(const Progress& from, wire::Progress& to);
void write(const Overhead& from, wire::Overhead& to);
void write(const TargetCounts& from, wire::TargetCounts& to);
void write(const TargetList& from, wire::TargetList& to);
void write(const DryRunAnswer& from, wire::DryRunAnswer& to);
void write(const Welcome& from, wire::Welcome& to);
void write(const Offer& from, wire::Offer& to);
void write(const Prepare& from, wire::Prepare& to);
void write(const DryRun& from, wire::DryRun& to);
void write(const Command& from, wire::Command& to);
void write(const CommandReply& from, wire::CommandReply& to);
void write(const Introduction& from, wire::Introduction& to);
void write(const LogEntry& from, wire::LogEntry& to);

tl::expected<Verdict, std::string> read_verdict(const wire::Verdict& from);
tl::expected<KnownDecisions, std::string> read_known_decisions(const wire::KnownDecisions& from);
tl::expected<Hello, std::string> read_hello(const wire::Hello& from);
Offered read_offered(const wire::Offered& from);
Overhead read_overhead(const wire::Overhead& from);
TargetCounts read_counts(const wire::TargetCounts& from);
TargetList read_targets(const wire::TargetList& from);
Progress read_progress(const wire::Progress& from);
tl::expected<Welcome, std::string> read_welcome(const wire::Welcome& from);
tl::expected<Offer, std::string> read_offer(const wire::Offer& from);
tl::expected<Prepare, std::string> read_prepare(const wire::Prepare& from);
tl::expected<DryRun, std::string> read_dry_run(const wire::DryRun& from);
tl::expected<Command, std::string> read_command(const wire::Command& from);
Introduction read_introduction(const wire::Introduction& from);
tl::expected<LogEntry, std::string> read_log_entry(const wire::LogEntry& from);
tl::expected<CommandReply, std::string> read_reply(const wire::CommandReply& from);

}  // namespace gradmon
