// SPDX-License-Identifier: Apache-2.0
// The ways between the processes of a simulated job: its network, and its
// register.
#include <utility>

#include "control/agree/mutant.h"
#include "tests/control/simulator/simulation.h"

namespace gradmon {

std::uint32_t Simulation::store(Mail mail) {
  if (free_mails_.empty()) {
    mails_.push_back(std::move(mail));
    return static_cast<std::uint32_t>(mails_.size() - 1);
  }
  const std::uint32_t index = free_mails_.back();
  free_mails_.pop_back();
  mails_[index] = std::move(mail);
  return index;
}

void Simulation::post_up(Process& process, Message message) {
  const bool hello = std::holds_alternative<Hello>(message);
  Letter letter{hello ? "" : process.epoch, process.rank, hello ? 0 : process.incarnation,
                std::move(message)};
  if (process.coordinator) {
    process.own_letters.push_back(std::move(letter));
    return;
  }
  Process* rank0 = launch_of(process).seats[0];
  if (rank0 != nullptr && rank0->alive) send(process, *rank0, std::move(letter));
}

void Simulation::post_down(Process& coordinator, Letter letter) {
  Launch& launch = launch_of(coordinator);
  if (letter.rank.value == 0) return to_member(coordinator, letter);
  const std::pair<int, std::uint64_t> route{letter.rank.value, letter.incarnation};
  Process* to = nullptr;
  if (const auto* welcome = std::get_if<Welcome>(&letter.message)) {
    for (Process& one : processes_) {
      if (one.seen.id == welcome->process_id) to = &one;
    }
    if (welcome->refused.empty() && launch.routes.emplace(route, to).second) {
      const auto before = launch.routes.find({route.first, route.second - 1});
      if (before != launch.routes.end()) {
        before->second->usurped = true;
        release_from_verdicts(*before->second);
      }
    }
  } else if (const auto known = launch.routes.find(route); known != launch.routes.end()) {
    to = known->second;
  }
  if (to != nullptr && to->alive) send(*to, *to, std::move(letter));
}

void Simulation::send(Process& member, Process& to, Letter letter) {
  const bool up = &member != &to;
  if ((up ? member.cut_up : member.cut_down) > 0) {
    if (!member.cut_keeps) return;
    member.kept.emplace_back(to.index,
                             store({up ? Mail::Kind::up : Mail::Kind::down, std::move(letter), {}, {}, {}}));
    return;
  }
  if (dice_.chance(lose_)) return;
  for (int copies = dice_.chance(twice_) ? 2 : 1; copies > 0; --copies) {
    const Instant takes{dice_.between(50, 400) + 1000 * dice_.between(0, delay_)};
    Mail mail{up ? Mail::Kind::up : Mail::Kind::down, copies == 1 ? std::move(letter) : letter, {}, {}, {}};
    timeline_.add(now_ + takes, Due::Kind::mail, to.index, store(std::move(mail)));
  }
}

void Simulation::call_disk(Process& process, Mail::Kind answer, Home home, Verdict verdict) {
  process.disk.push_back({answer, home, std::move(verdict)});
  start_disk(process);
}

void Simulation::start_disk(Process& process) {
  if (process.disk_busy || process.disk.empty() || process.register_hangs > 0) return;
  process.disk_busy = true;
  const Instant takes{dice_.between(100, 1000 * script_.register_ms)};
  timeline_.add(now_ + takes, Due::Kind::disk, process.index);
}

tl::expected<Verdict, std::string> Simulation::decide(Process& process, const DiskCall& call) {
  if (call.home == Home::undecided) fail(process.seen.id + " writes before it knows where");
  Launch& launch = launch_of(process);
  auto& seen = launch.record.verdicts;
  const std::uint64_t revision = call.verdict.revision.value;
  if (mutated(Mutant::leaves_open_on_return) && call.verdict.abort_reason == AbortReason::came_back &&
      seen.count(revision) == 0) {
    return call.verdict;
  }
  const Verdict held = *(*launch.verdicts)[call.home].decide(call.verdict);
  const auto known = seen.emplace(revision, held).first;
  if (known->second.author != held.author || known->second.commit() != held.commit())
    fail("revision " + std::to_string(revision) + " has two verdicts");
  return held;
}

// What was called when the process died may be done nevertheless; so may what
// the register says has failed.
void Simulation::end_disk(Process& process) {
  const DiskCall call = std::move(process.disk.front());
  process.disk.pop_front();
  process.disk_busy = false;
  const bool fails = process.register_fails > 0;
  const bool done = (!fails && process.alive) || dice_.chance(500);
  Mail mail;
  mail.kind = call.answer;
  const bool decides =
      call.answer == Mail::Kind::member_answer || call.answer == Mail::Kind::coordinator_answer;
  if (decides && done) {
    mail.held = decide(process, call);
  } else if (call.answer == Mail::Kind::proof) {
    mail.home = call.home;
    if (call.home == Home::directory && script_.store != 0)
      mail.held = tl::unexpected(std::string("it is not the same directory"));
  }
  if (call.answer == Mail::Kind::begin) mail.plan = call.verdict.plan;
  if (fails && call.answer != Mail::Kind::begin) mail.held = tl::unexpected(std::string("it fails"));
  if (!process.alive) return;
  start_disk(process);
  deliver(process, store(std::move(mail)));
}

}  // namespace gradmon
