// SPDX-License-Identifier: Apache-2.0
// Simulation: the lines for the listener, which describe a history to people.
#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

std::string number(Revision revision) { return " " + std::to_string(revision.value); }
std::string number(Step step) { return " " + std::to_string(step.value); }

std::string decisions_text(const KnownDecisions& last) {
  std::string text = "; closed" + number(last.closed);
  if (!last.commit) return text;
  return text + ", newest commit" + number(last.commit->revision) + (last.commit->plan->on ? " on" : " off") +
         " at step" + number(last.commit->effective);
}

struct MessageText {
  std::string operator()(const Hello& m) const {
    return "Hello " + std::to_string(m.number) + " of " + m.process_id + " step" + number(m.step) +
           (m.lapsed ? " lapsed" : "") + (m.held ? ", holds" + number(m.held->revision) : "");
  }
  std::string operator()(const Offered& m) const { return "Offered" + number(m.revision); }
  std::string operator()(const Reject& m) const { return "Reject" + number(m.revision); }
  std::string operator()(const Ready& m) const {
    return "Ready" + number(m.revision) + " fence" + number(m.fence);
  }
  std::string operator()(const Busy& m) const { return "Busy" + number(m.revision); }
  std::string operator()(const Applied& m) const {
    return "Applied" + number(m.revision) + " at" + number(m.step);
  }
  std::string operator()(const Finished& m) const { return "Finished" + number(m.revision); }
  std::string operator()(const Progress& m) const {
    return "Progress " + std::to_string(m.number) + " step" + number(m.step) + " closed" + number(m.closed) +
           " applied" + number(m.applied) + " finished" + number(m.finished);
  }
  std::string operator()(const Left& m) const { return "Left" + number(m.last); }
  std::string operator()(const Disconnected&) const { return "Disconnected"; }
  std::string operator()(const DryRunAnswer&) const { return "DryRunAnswer"; }
  std::string operator()(const Welcome& m) const {
    return "Welcome " + m.process_id + " to Hello " + std::to_string(m.number) + " as " +
           std::to_string(m.incarnation) + (m.epoch_starts_on ? ", starts on" : "") + " " + m.refused +
           decisions_text(m.last);
  }
  std::string operator()(const Offer& m) const { return "Offer" + number(m.revision); }
  std::string operator()(const Prepare& m) const {
    return "Prepare" + number(m.revision) + " lookahead " + std::to_string(m.lookahead) +
           decisions_text(m.last);
  }
  std::string operator()(const Decided& m) const { return "Decided" + decisions_text(m.last); }
  std::string operator()(const ProgressAck& m) const { return "ProgressAck " + std::to_string(m.number); }
  std::string operator()(const LeftAck&) const { return "LeftAck"; }
  std::string operator()(const RejoinRequest&) const { return "RejoinRequest"; }
  std::string operator()(const Replaced&) const { return "Replaced"; }
  std::string operator()(const DryRun&) const { return "DryRun"; }
  std::string operator()(const AlertReport&) const { return "AlertReport"; }
  std::string operator()(const ReplicaDigests&) const { return "ReplicaDigests"; }
  std::string operator()(const ReplicaRequest&) const { return "ReplicaRequest"; }
  std::string operator()(const ReplicaValues&) const { return "ReplicaValues"; }
};

}  // namespace

void Simulation::trace_line(const std::string& line) const {
  trace_(std::to_string(now_.count() / 1000) + " ms: " + line);
}

void Simulation::trace_message(const std::string& to, const Envelope& envelope) const {
  trace_line(to + " (" + std::to_string(envelope.incarnation) +
             "): " + std::visit(MessageText{}, envelope.message));
}

}  // namespace gradmon
