// SPDX-License-Identifier: Apache-2.0
// The numbers of the fields of a Status on the wire. A new field needs a line here; its number must never be
// reused.
#pragma once

#include "control/wire/field_codec.h"
#include "gradmon/status.h"

namespace gradmon {

template <>
struct NumberedFields<Overhead> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.revision);
    visit(2, self.collected);
    visit(3, self.share);
    visit(4, self.steps);
  }
};

template <>
struct NumberedFields<TargetCounts> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.watched);
    visit(2, self.silent);
    visit(3, self.unmatched);
  }
};

template <>
struct NumberedFields<AgreeingRanks> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.agreeing);
    visit(2, self.counted);
    visit(3, self.dropped);
    visit(4, self.ended);
    visit(5, self.waited_ms);
    visit(6, self.rows_dropped);
  }
};

template <>
struct NumberedFields<ReplicasCompared> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.groups);
    visit(2, self.ranks);
    visit(3, self.last_step);
    visit(4, self.comparisons);
    visit(5, self.incomplete);
    visit(6, self.unresolved);
    visit(7, self.not_compared);
  }
};

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
    visit(8, self.step_ms);
    visit(9, self.last_seen_ms);
    visit(10, self.last_stepped_ms);
    visit(11, self.records);
    visit(12, self.dropped);
    visit(13, self.error);
    visit(14, self.overhead);
    visit(15, self.targets);
    visit(16, self.accepted);
    visit(17, self.waited_ms);
    visit(18, self.alerts);
    visit(19, self.listed_alerts);
    visit(22, self.flight_written);
    visit(23, self.flight_lost);
  }
};

template <>
struct NumberedFields<Pending> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.revision);
    visit(2, self.reason);
    visit(3, self.since);
  }
};

template <>
struct NumberedFields<LastError> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.at);
    visit(2, self.text);
    visit(3, self.count);
  }
};

template <>
struct NumberedFields<Status> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.epoch);
    visit(2, self.mode);
    visit(3, self.state);
    visit(4, self.reason);
    visit(5, self.revision);
    visit(6, self.effective_step);
    visit(7, self.pending);
    visit(8, self.collected);
    visit(9, self.collect_times);
    visit(10, self.step_interval);
    visit(11, self.config_path);
    visit(12, self.config_sha256);
    visit(13, self.last_error);
    visit(14, self.warnings);
    visit(15, self.ranks);
    visit(17, self.torch);
    visit(18, self.hooks);
    visit(19, self.output_dir);
    visit(20, self.launch_id);
    visit(21, self.name);
    visit(22, self.started);
    visit(25, self.alerts_endpoint);
    visit(26, self.replicas_compared);
    visit(27, self.unlisted);
  }
};

}  // namespace gradmon
