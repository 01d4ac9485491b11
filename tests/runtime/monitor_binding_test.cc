// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor_binding.h"

#include <sys/resource.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>

#include "control/config/config_parser.h"
#include "control/debian_version.h"
#include "hooks/names/target_names.h"
#include "runtime/collect/expected_targets.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

// A config that takes long to match: a target that does not exist is compared with every name.
constexpr const char* kMisspeltTargets =
    R"({"dynamic_on": true, "wg_distribution": true, "targets": {"block.7.weight": {}, "blokc.11.weihgt": {},
        "lbock.222.weighs": {}, "block.3333.wait": {}, "blocks.55555.heights": {}, "black.66.weight": {}}})";

WatchedModel large_model() {
  WatchedModel model;
  const at::Tensor weight = torch::zeros({1}, torch::requires_grad());
  for (int i = 0; i < 25'000; ++i)
    model.parameters.push_back({"block." + std::to_string(i) + ".weight", 0, weight});
  return model;
}

Clock::duration time_of_matching(const WatchedModel& model) {
  const auto parsed = parse_config(kMisspeltTargets, "config");
  REQUIRE(parsed.has_value());
  const std::vector<TargetName> names = target_names(model);
  const auto begun = Clock::now();
  CHECK(possible_matches(parsed->config, names) == 1);
  return Clock::now() - begun;
}

// How often this thread has given up the processor by itself, as it does to wait.
long waits_of_this_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

TEST_CASE("noting a skipped update does not wait while the targets of a plan are matched") {
  const TemporaryDirectory directory;
  write_text(directory / "config.json", kMisspeltTargets);
  MonitorOptions options;
  options.output_dir = directory / "out";
  options.dynamic = true;
  Monitor monitor(directory / "config.json", options);
  MonitorBinding binding(monitor);
  const WatchedModel model = large_model();
  const Clock::duration matching = time_of_matching(model);
  binding.watch(model);
  Clock::duration longest{};
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (!binding.collecting() && Clock::now() < deadline) {
    const long waits = waits_of_this_thread();
    const auto begun = Clock::now();
    binding.note_skipped_update();
    const Clock::duration took = Clock::now() - begun;
    // Otherwise a long call was only interrupted by the system, as happens on a busy machine.
    if (waits_of_this_thread() != waits) longest = std::max(longest, took);
    monitor.step();
  }
  CHECK(binding.collecting());
  CHECK(longest < matching * 3 / 4);
}

}  // namespace
}  // namespace gradmon
