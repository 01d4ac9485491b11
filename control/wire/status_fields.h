// SPDX-License-Identifier: Apache-2.0
// The numbers of the fields of a Status on the wire. A new field needs a line here; its number must never be
// reused.
#pragma once

#include "control/wire/field_codec.h"
#include "gradmon/status.h"

namespace gradmon {

template <>
struct NumberedFields<Overhead> : FieldTable<At<1, &Overhead::revision>, At<2, &Overhead::collected>,
                                             At<3, &Overhead::share>, At<4, &Overhead::steps>> {};

template <>
struct NumberedFields<TargetCounts> : FieldTable<At<1, &TargetCounts::watched>, At<2, &TargetCounts::silent>,
                                                 At<3, &TargetCounts::unmatched>> {};

template <>
struct NumberedFields<AgreeingRanks>
    : FieldTable<At<1, &AgreeingRanks::agreeing>, At<2, &AgreeingRanks::counted>,
                 At<3, &AgreeingRanks::dropped>, At<4, &AgreeingRanks::ended>,
                 At<5, &AgreeingRanks::waited_ms>, At<6, &AgreeingRanks::rows_dropped>> {};

template <>
struct NumberedFields<ReplicasCompared>
    : FieldTable<At<1, &ReplicasCompared::groups>, At<2, &ReplicasCompared::ranks>,
                 At<3, &ReplicasCompared::last_step>, At<4, &ReplicasCompared::comparisons>,
                 At<5, &ReplicasCompared::incomplete>, At<6, &ReplicasCompared::unresolved>,
                 At<7, &ReplicasCompared::not_compared>> {};

template <>
struct NumberedFields<RankStatus>
    : FieldTable<At<1, &RankStatus::rank>, At<2, &RankStatus::host>, At<3, &RankStatus::pid>,
                 At<4, &RankStatus::step>, At<5, &RankStatus::revision>, At<6, &RankStatus::applied_step>,
                 At<7, &RankStatus::state>, At<8, &RankStatus::step_ms>, At<9, &RankStatus::last_seen_ms>,
                 At<10, &RankStatus::last_stepped_ms>, At<11, &RankStatus::records>,
                 At<12, &RankStatus::dropped>, At<13, &RankStatus::error>, At<14, &RankStatus::overhead>,
                 At<15, &RankStatus::targets>, At<16, &RankStatus::accepted>, At<17, &RankStatus::waited_ms>,
                 At<18, &RankStatus::alerts>, At<19, &RankStatus::listed_alerts>,
                 At<22, &RankStatus::flight_written>, At<23, &RankStatus::flight_lost>> {};

template <>
struct NumberedFields<Pending>
    : FieldTable<At<1, &Pending::revision>, At<2, &Pending::reason>, At<3, &Pending::since>> {};

template <>
struct NumberedFields<LastError>
    : FieldTable<At<1, &LastError::at>, At<2, &LastError::text>, At<3, &LastError::count>> {};

template <>
struct NumberedFields<Status>
    : FieldTable<At<1, &Status::epoch>, At<2, &Status::mode>, At<3, &Status::state>, At<4, &Status::reason>,
                 At<5, &Status::revision>, At<6, &Status::effective_step>, At<7, &Status::pending>,
                 At<8, &Status::collected>, At<9, &Status::collect_times>, At<10, &Status::step_interval>,
                 At<11, &Status::config_path>, At<12, &Status::config_sha256>, At<13, &Status::last_error>,
                 At<14, &Status::warnings>, At<15, &Status::ranks>, At<17, &Status::torch>,
                 At<18, &Status::hooks>, At<19, &Status::output_dir>, At<20, &Status::launch_id>,
                 At<21, &Status::name>, At<22, &Status::started>, At<25, &Status::alerts_endpoint>,
                 At<26, &Status::replicas_compared>, At<27, &Status::unlisted>> {};

}  // namespace gradmon
