// SPDX-License-Identifier: Apache-2.0
// One fault that comes while a job trains, and what has to hold all the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/disks.h"
#include "tests/whole/availability/stalls.h"
#include "tests/whole/availability/training_job.h"

namespace gradmon {

// What a fault is done to.
struct Scene {
  explicit Scene(const JobOptions& options);

  // Keep this order: disks outlive the processes that use them.
  TemporaryDirectory directory;
  JobPlaces places;
  std::unique_ptr<SmallDisk> small_disk;
  std::unique_ptr<HangingDisk> hanging_disk;
  std::shared_ptr<void> held;  // whatever else the fault needs
  TrainingJob job;
  std::unique_ptr<TrainingJob> second_job;
};

// When the fault comes: nothing is on; a plan is collected; a change has just been asked for.
enum class Phase : std::uint8_t { idle, on, open };
const char* name_of(Phase phase);

enum class Off : std::uint8_t { is_decided, cannot_be_decided };
enum class Healing : std::uint8_t { heals, lasts };  // lasts: only a restart of the job helps

// A row of the table of faults.
struct Fault {
  std::string name;
  std::function<void(Scene&)> begin;
  std::function<void(Scene&)> end = {};      // null: nothing is to be undone
  std::function<void(Scene&)> prepare = {};  // before the job starts
  JobOptions job = {};
  std::string status = {};             // pattern that `gradmonctl status` shows; "": nothing need be said
  std::chrono::milliseconds lasts{0};  // exactly; 0: until off is decided and the status is right
  Off off = Off::is_decided;
  Healing healing = Healing::heals;
  std::set<int> not_compared = {};  // ranks whose end is not that of a bare training
  // More that has to hold, once all is over; lines that say what does not.
  std::function<std::vector<std::string>(Scene&)> besides = {};
};

// Runs a job of real processes through the fault. What did not hold, each a line.
struct Outcome {
  std::vector<std::string> broken;
  std::string account;  // what was seen, for people
  std::string output;   // of the processes
};
Outcome go_through(const Fault& fault, Phase phase, unsigned seed);

}  // namespace gradmon
