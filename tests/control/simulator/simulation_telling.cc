// SPDX-License-Identifier: Apache-2.0
// A simulated history in words, for whoever looks into a seed.
#include <type_traits>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

std::string number(Revision revision) { return " " + std::to_string(revision.value); }
std::string number(Step step) { return " " + std::to_string(step.value); }

std::string words(const Verdict& verdict) {
  return number(verdict.revision) +
         (verdict.commit() ? " commit at step" + number(verdict.effective) : " abort: " + verdict.reason) +
         ", by " + verdict.author;
}

std::string words(const LastWord& last) {
  return "; closed" + number(last.closed) + (last.commit ? ", newest" + words(*last.commit) : "");
}

struct InWords {
  std::string operator()(const Hello&) const { return "Hello"; }
  std::string operator()(const Joined& joined) const { return "Joined " + joined.reason; }
  std::string operator()(const Ready& m) const {
    return "Ready" + number(m.revision) + " fence" + number(m.fence);
  }
  std::string operator()(const Reject& m) const { return "Reject" + number(m.revision); }
  std::string operator()(const Applied& m) const {
    return "Applied" + number(m.revision) + " at" + number(m.step);
  }
  std::string operator()(const Finished& m) const { return "Finished" + number(m.revision); }
  std::string operator()(const Missed& m) const { return "Missed" + number(m.revision); }
  std::string operator()(const Progress& m) const {
    return "Progress step" + number(m.step) + " closed" + number(m.closed) + " applied" + number(m.applied) +
           " finished" + number(m.finished) + " missed" + number(m.missed);
  }
  std::string operator()(const Left& m) const { return "Left" + number(m.last); }
  std::string operator()(const Pong&) const { return "Pong"; }
  std::string operator()(const Probed&) const { return "Probed"; }
  std::string operator()(const Welcome& m) const {
    return "Welcome " + m.process_id + (m.rejoined ? ", back" : "") + (m.starts_on ? ", starts on" : "") +
           " " + m.refused + words(m.last);
  }
  std::string operator()(const Prepare& m) const {
    return "Prepare" + number(m.revision) + " lookahead " + std::to_string(m.lookahead) + ", doubt after " +
           std::to_string(m.doubt_after.count()) + words(m.last);
  }
  std::string operator()(const LeftHeard&) const { return "LeftHeard"; }
  std::string operator()(const Replaced&) const { return "Replaced"; }
  std::string operator()(const Ping&) const { return "Ping"; }
  std::string operator()(const Probe&) const { return "Probe"; }
  std::string operator()(const Closing&) const { return "Closing"; }
  std::string operator()(const Decided& m) const { return "Decided" + words(m.last); }
};

std::string words(const tl::expected<Verdict, std::string>& held) {
  return held ? words(*held) : " no answer: " + held.error();
}

}  // namespace

void Simulation::tell_line(const std::string& line) const {
  tell_(std::to_string(now_.count() / 1000) + " ms: " + line);
}

void Simulation::tell(const Process& process, const Mail& mail) const {
  const std::string in_words = std::visit(InWords{}, mail.letter.message);
  const std::string& id = process.seen.id;
  switch (mail.kind) {
    case Mail::Kind::begin:
      return tell_line(id + ": the epoch begins");
    case Mail::Kind::propose:
      return tell_line(id + ": change " + mail.plan->request_id);
    case Mail::Kind::up:
      return tell_line("from rank " + std::to_string(mail.letter.rank.value) + ": " + in_words);
    case Mail::Kind::down:
      return tell_line("to " + id + ": " + in_words);
    case Mail::Kind::member_answer:
      return tell_line("register to " + id + ":" + words(mail.held));
    case Mail::Kind::coordinator_answer:
      return tell_line("register to the coordinator:" + words(mail.held));
    case Mail::Kind::proof:
      return tell_line("register to " + id + ": proof");
    case Mail::Kind::rows:
      return tell_line(id + ": rows of revision" + number(mail.revision));
  }
}

}  // namespace gradmon
