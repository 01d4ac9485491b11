// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "control/wire/command.h"
#include "tests/benchmarks/local_rank.h"
#include "tests/benchmarks/measure/scratch_job.h"

namespace gradmon {

// A job of eight real ranks on this host: agents, their hub and a config file, without
// torch. Steps of all ranks begin at the same instants. One thread.
class EightRanks {
 public:
  static constexpr int kRanks = 8;

  // Throws std::runtime_error if the ranks do not meet within 20 s.
  explicit EightRanks(std::chrono::microseconds pace, bool on = false);

  // A config that is on or off; `number` makes its text unique.
  static std::string config_text(bool on, int number);

  const std::filesystem::path& config() const { return config_; }
  std::filesystem::path socket() const { return socket_; }
  VerdictTimes& times() { return times_; }
  // When step n begins on every rank.
  SteadyTime begin_of(std::int64_t n) const { return zero_ + n * pace_; }
  Status status() const { return ranks_.front()->status(); }
  // Throws std::runtime_error if the answer is not "done".
  CommandReply ask(CommandVerb verb) const;

 private:
  const std::chrono::microseconds pace_;
  const ScratchJob job_;
  const std::filesystem::path config_;
  std::filesystem::path socket_;  // of the hub
  SteadyTime zero_;
  VerdictTimes times_;
  std::vector<std::unique_ptr<LocalRank>> ranks_;
};

// Both return the time just before they change the file. save_by_rename writes a new file
// beside it and renames that, as editors do.
SteadyTime save_by_rename(const std::filesystem::path& path, const std::string& text);
SteadyTime save_in_place(const std::filesystem::path& path, const std::string& text);

}  // namespace gradmon
