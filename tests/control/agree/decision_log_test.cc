// SPDX-License-Identifier: Apache-2.0
#include "control/agree/decision_log.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "control/agree/membership.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TEST_CASE("a compacted log keeps the newest plans, the user's plan, an open offer and the ranks") {
  const auto plan = [](Cause cause) {
    auto made = std::make_shared<Plan>();
    made->cause = cause;
    made->config_text = std::string(1'000, 'x');
    return made;
  };
  std::vector<LogEntry> entries{JoinedEntry{Rank{0}, 1, {}}};
  const auto decide = [&](std::uint64_t revision, Cause cause) {
    entries.emplace_back(OfferedEntry{Revision{revision}, plan(cause), 0});
    entries.emplace_back(Verdict{Revision{revision}, plan(cause), Step{9}, AbortReason::none, ""});
    entries.emplace_back(AppliedEntry{Revision{revision}});
  };
  decide(1, Cause::file);
  decide(2, Cause::ctl);
  for (std::uint64_t revision = 3; revision < 9; ++revision) decide(revision, Cause::budget);
  entries.emplace_back(WrittenBackEntry{Revision{8}});
  entries.emplace_back(DepartureEntry{Rank{0}, DepartureEntry::How::left, Step{3}, ""});
  entries.emplace_back(OfferedEntry{Revision{9}, plan(Cause::file), 0});
  const auto offers = [](const std::vector<LogEntry>& left) {
    std::vector<std::uint64_t> revisions;
    for (const LogEntry& entry : left) {
      if (const auto* offered = std::get_if<OfferedEntry>(&entry))
        revisions.push_back(offered->revision.value);
    }
    return revisions;
  };
  const auto least = compacted(entries, 0);
  CHECK(offers(least) == std::vector<std::uint64_t>{2, 8, 9});
  CHECK(least.size() == 3 + 3 + 1 + 3);  // revisions 2, 8, its end, and 9 between the rank's entries
  CHECK(std::holds_alternative<JoinedEntry>(least.front()));
  CHECK(offers(compacted(entries, 6'000)) == std::vector<std::uint64_t>{2, 7, 8, 9});
  CHECK(offers(compacted(entries, 1'000'000)).size() == 9);
  CHECK(compacted({}, 0).empty());
}

// The result of Membership::restore() for the entries.
std::string restored_members(const std::vector<LogEntry>& entries) {
  Membership members({"", "", 0, "launch", 2});
  for (const LogEntry& entry : entries) {
    if (const auto* joined = std::get_if<JoinedEntry>(&entry)) members.restore(*joined, Ticks{});
    if (const auto* gone = std::get_if<DepartureEntry>(&entry)) members.restore(*gone);
  }
  std::string text = std::to_string(members.last_departed_step().value_or(Step{-1}).value);
  for (const Membership::Member& member : members) {
    text += "; " + std::to_string(static_cast<int>(member.phase)) + " " + member.hello.process_id + " " +
            member.hello.held_epoch + " " + std::to_string(member.incarnation) + " " +
            std::to_string(member.first_incarnation) + " " + std::to_string(member.first_start.value) + " " +
            std::to_string(member.progress.step.value) + " " + std::to_string(member.last_step.value) + " " +
            member.evicted_by;
  }
  return text;
}

std::set<std::string> epochs_in(const std::vector<LogEntry>& entries) {
  std::set<std::string> epochs;
  for (const LogEntry& entry : entries) {
    if (const auto* joined = std::get_if<JoinedEntry>(&entry)) epochs.insert(joined->hello.held_epoch);
  }
  return epochs;
}

TEST_CASE("a compacted log gives the same members, whoever has joined and gone in whatever order") {
  std::mt19937_64 random(5);
  std::size_t least = 1'000;
  for (int log = 0; log < 2'000; ++log) {
    std::vector<LogEntry> entries;
    for (std::uint64_t i = 1; i <= 30; ++i) {
      const Rank rank{static_cast<int>(random() % 2)};
      const Step step{static_cast<std::int64_t>(random() % 100)};
      if (random() % 3 == 0) {
        entries.emplace_back(
            DepartureEntry{rank, static_cast<DepartureEntry::How>(random() % 3), step, "somebody"});
        continue;
      }
      Hello hello;
      hello.process_id = random() % 5 == 0 ? "other " + std::to_string(random() % 2) : "process";
      hello.held_epoch = random() % 5 == 0 ? "" : random() % 5 == 0 ? "earlier" : "epoch";
      hello.start_iteration = hello.step = step;
      hello.lapsed = random() % 2 == 0;
      entries.emplace_back(JoinedEntry{rank, i, hello});
    }
    const auto left = compacted(entries, 0);
    REQUIRE(restored_members(left) == restored_members(entries));
    REQUIRE(epochs_in(left) == epochs_in(entries));
    least = std::min(least, left.size());
  }
  CHECK(least < 20);
}

TEST_CASE("a rank that lapses or is started again and again takes no more room in a compacted log") {
  const bool one_process = GENERATE(true, false);
  std::vector<LogEntry> entries;
  for (std::uint64_t i = 1; i <= 1'000; ++i) {
    Hello hello;
    hello.process_id = one_process ? "process" : "process " + std::to_string(i);
    hello.held_epoch = i == 1 ? "" : "epoch";
    hello.step = Step{static_cast<std::int64_t>(10 * i)};
    entries.emplace_back(JoinedEntry{Rank{0}, i, hello});
    entries.emplace_back(DepartureEntry{Rank{0}, DepartureEntry::How::dropped, hello.step + 5, ""});
  }
  CHECK(compacted(entries, 0).size() <= 6);
}

}  // namespace
}  // namespace gradmon
