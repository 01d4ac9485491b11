// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/availability.h"

#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string_view>

#include "control/debian_version.h"
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
  const std::string asked = variable("GRADMON_AVAILABILITY_PHASE");
  if (!asked.empty()) return {asked == "idle" ? Phase::idle : asked == "on" ? Phase::on : Phase::open};
  return full_scale() ? all : std::vector{all[seed % 3]};
}

}  // namespace

std::string of_rank(const std::string& rank, const std::string& what) {
  return "(rank |\n +)" + rank + "\\b.*(" + what + ")";
}

bool full_scale() { return variable("GRADMON_TEST_SCALE") == "full"; }

void check(const Fault& fault) {
  if (const std::string trouble = own_mounts(); !trouble.empty()) {
    WARN("not run, this needs mounts: " << trouble);
    return;
  }
  const unsigned seed = seed_of(fault.name);
  for (const Phase phase : phases(seed)) {
    const Outcome outcome = go_through(fault, phase, seed);
    std::cout << fault.name << ", while " << name_of(phase) << ", seed " << seed << '\n' << outcome.account;
    for (const std::string& broken : outcome.broken) std::cout << "BROKEN: " << broken << '\n';
    std::cout << std::flush;
    INFO(outcome.output);
    CHECK(outcome.broken.empty());
  }
}

}  // namespace gradmon
