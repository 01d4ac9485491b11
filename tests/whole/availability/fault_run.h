// SPDX-License-Identifier: Apache-2.0
// Runs a training job through one fault and checks the promises of availability.
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
#include "tests/whole/availability/training_checks.h"
#include "tests/whole/availability/training_job.h"

namespace gradmon {

// The job that the fault hits, with its directories and disks.
struct FaultFixture {
  explicit FaultFixture(const JobOptions& options);

  // Keep this order: disks outlive the processes that use them.
  TemporaryDirectory directory;
  JobPlaces places;
  std::unique_ptr<SmallDisk> small_disk;
  std::unique_ptr<HangingDisk> hanging_disk;
  TrainingJob job;
  std::unique_ptr<TrainingJob> second_job;
};

// When the fault begins: gradmon is off; a plan is on; `on` has just been sent, so a revision is open.
enum class Phase : std::uint8_t { idle, on, open };
const char* name_of(Phase phase);

enum class Off : std::uint8_t { is_decided, cannot_be_decided };
// needs_restart: the fault lasts until the job is restarted.
enum class Recovery : std::uint8_t { expected, needs_restart };

// A fault, and the answers and limits that are expected of the job.
struct Fault {
  std::string name;  // printed; also chooses the phase (see check_fault())
  std::function<void(FaultFixture&)> begin = {};
  std::function<void(FaultFixture&)> end = {};      // null: nothing to undo
  std::function<void(FaultFixture&)> prepare = {};  // before the job starts
  JobOptions job = {};
  std::string status = {};                // pattern that `gradmonctl status` must show; "": none
  std::chrono::milliseconds duration{0};  // exactly; 0: until `off` has an answer and `status` was seen
  Off off = Off::is_decided;
  Recovery recovery = Recovery::expected;
  std::set<int> not_compared = {};  // ranks that do not end as bare training does
  // Further checks, after the job has ended. Returns one line for each broken promise.
  std::function<std::vector<std::string>(FaultFixture&)> further_checks = {};
};

struct Outcome {
  std::vector<std::string> violations;  // one line for each broken promise
  std::string event_log;                // the course of events, for people
  std::string output;                   // of the processes
};
// Runs a job of real processes through the fault. The promises: stalls() keeps StallBounds,
// `off` is decided within 5 s, `status` shows Fault::status, `on` and `off` work again
// within 12 s after the fault, ranks do not disagree on a step, and training ends as
// without gradmon.
Outcome run_fault(const Fault& fault, Phase phase, unsigned seed);

// Runs the fault (run_fault()) in one phase, chosen by the fault's name and the seed
// (GRADMON_AVAILABILITY_SEED, else 1). GRADMON_TEST_SCALE=full: in all three phases.
// GRADMON_AVAILABILITY_PHASE=idle, on or open: in that phase. Prints the course of
// events; fails the test if a promise was broken. Skips it where mounts are impossible.
void check_fault(const Fault& fault);

// A pattern for Fault::status: `what` in the rank's row of the table, or in a line that
// names the rank. `rank` and `what` are patterns, too.
std::string rank_pattern(const std::string& rank, const std::string& what);

}  // namespace gradmon
