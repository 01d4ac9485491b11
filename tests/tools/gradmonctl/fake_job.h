// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <sstream>

#include "tools/gradmonctl/cli/job.h"

namespace gradmon {

// Stands in for a job in tests that call a command's function: gives the queued answers in order, then no
// answer. Its clock advances only while a command sleeps or waits in vain for an answer. A gradmonctl
// process needs a FakeHub instead.
class FakeJob {
 public:
  FakeJob(std::initializer_list<CommandReply> answers = {}) : answers_(answers.begin(), answers.end()) {}

  void answer(CommandReply reply) { answers_.push_back(std::move(reply)); }
  void stay_silent() { answers_.push_back(tl::unexpected(std::string("no answer"))); }
  void repeat_last_answer() { repeats_last_answer_ = true; }

  AskJob ask() {
    return [this](const Command& command, std::chrono::milliseconds patience) {
      asked.push_back(command);
      if (answers_.empty()) answers_.push_back(tl::unexpected(std::string("no answer")));
      auto reply = answers_.front();
      if (!repeats_last_answer_ || answers_.size() > 1) answers_.pop_front();
      if (!reply) now_ += patience;
      return reply;
    };
  }
  CommandClock clock() {
    return {[this] { return now_; }, [this](std::chrono::milliseconds time) { now_ += time; }};
  }
  Console console() { return {out, err}; }

  std::vector<Command> asked;
  std::ostringstream out;
  std::ostringstream err;

 private:
  std::deque<tl::expected<CommandReply, std::string>> answers_;
  bool repeats_last_answer_ = false;
  std::chrono::steady_clock::time_point now_{};
};

inline CommandReply reply_with(CommandOutcome outcome, const std::string& message) {
  CommandReply reply;
  reply.outcome = outcome;
  reply.message = message;
  return reply;
}

// The reply to dry_run_targets: how many targets match on rank 0, rank 1 and so on.
inline CommandReply match_counts_reply(const std::vector<std::int64_t>& matching) {
  CommandReply reply;
  for (const std::int64_t count : matching) {
    TargetList list;
    list.counts.watched = count;
    const Rank rank{static_cast<int>(reply.rank_answers.size())};
    reply.rank_answers.push_back({rank, true, count, "", std::move(list)});
  }
  return reply;
}

}  // namespace gradmon
