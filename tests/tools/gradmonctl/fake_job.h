// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <sstream>
#include <vector>

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// A job that says what the test has laid down, in that order, then nothing more;
// with a clock that only moves when somebody waits.
class FakeJob {
 public:
  void answer(CommandReply reply) { answers_.push_back(std::move(reply)); }
  void stay_silent() { answers_.push_back(tl::unexpected(std::string("no answer"))); }
  void repeat_last_answer() { repeats_ = true; }

  AskJob ask() {
    return [this](const Command& command, std::chrono::milliseconds patience) {
      asked.push_back(command);
      if (answers_.empty()) answers_.push_back(tl::unexpected(std::string("no answer")));
      auto reply = answers_.front();
      if (!repeats_ || answers_.size() > 1) answers_.pop_front();
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
  bool repeats_ = false;
  std::chrono::steady_clock::time_point now_{};
};

inline CommandReply reply_with(CommandOutcome outcome, const std::string& message) {
  CommandReply reply;
  reply.outcome = outcome;
  reply.message = message;
  return reply;
}

}  // namespace gradmon
