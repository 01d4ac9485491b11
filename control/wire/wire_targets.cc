// SPDX-License-Identifier: Apache-2.0
#include "control/wire/wire_values.h"

namespace gradmon {

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

}  // namespace gradmon
