// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/check_fault.h"
#include "tests/support/scale.h"

#include <cstdlib>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

unsigned seed_of(const std::string& name) {
  const std::string given = variable("GRADMON_AVAILABILITY_SEED");
  const unsigned base = given.empty() ? 1U : static_cast<unsigned>(std::stoul(given));
  return std::accumulate(name.begin(), name.end(), base,
                         [](unsigned sum, char c) { return sum * 31U + static_cast<unsigned char>(c); });
}

std::vector<Phase> phases(unsigned seed) {
  const std::vector<Phase> all{Phase::idle, Phase::on, Phase::open};
  const std::string wanted = variable("GRADMON_AVAILABILITY_PHASE");
  if (wanted == "idle") return {Phase::idle};
  if (wanted == "on") return {Phase::on};
  if (wanted == "open") return {Phase::open};
  if (!wanted.empty()) throw std::runtime_error("GRADMON_AVAILABILITY_PHASE is not idle, on or open");
  return scaled(0, 1) != 0 ? all : std::vector{all[seed % 3]};
}

}  // namespace

std::string rank_pattern(const std::string& rank, const std::string& what) {
  return "(rank |\n +)" + rank + "\\b.*(" + what + ")";
}

void check_fault(const Fault& fault) {
  if (const std::string error = isolate_mounts(); !error.empty()) {
    WARN("skipped: " << error);
    return;
  }
  const unsigned seed = seed_of(fault.name);
  for (const Phase phase : phases(seed)) {
    const Outcome outcome = run_fault(fault, phase, seed);
    std::cout << fault.name << ", while " << name_of(phase) << ", seed " << seed << '\n' << outcome.event_log;
    for (const std::string& violation : outcome.violations) std::cout << "VIOLATION: " << violation << '\n';
    std::cout << std::flush;
    INFO(outcome.output);
    CHECK(outcome.violations.empty());
  }
}

}  // namespace gradmon
