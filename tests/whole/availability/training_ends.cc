// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/training_ends.h"

#include <chrono>
#include <stdexcept>

#include "tests/support/real_job.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/child_process.h"

namespace gradmon {

namespace fs = std::filesystem;

const StepLogContent& BareTraining::run(std::int64_t first, std::int64_t last) {
  StepLogContent& known = runs_[first];
  if (known.parameters.count(last) != 0) return known;
  const fs::path steps = scratch_ / ("bare-" + std::to_string(first) + "-" + std::to_string(last));
  ProcessOptions options;
  options.command = {program("availability-trainer"),
                     "--bare",
                     "1",
                     "--every-hash",
                     "1",
                     "--step-ms",
                     "0",
                     "--step-log",
                     steps.string(),
                     "--start-iteration",
                     std::to_string(first),
                     "--steps",
                     std::to_string(last - first + 1)};
  options.output = scratch_ / "bare";
  options.environment = {{"OMP_NUM_THREADS", "1"}};  // as in TrainingJob
  ChildProcess child(options);
  if (child.wait(std::chrono::seconds(60)) != 0)
    throw std::runtime_error("the bare trainer failed: " + read_text(options.output));
  known = read_step_log(steps);
  return known;
}

std::vector<std::string> different_ends(TrainingJob& job, const std::map<int, std::optional<int>>& codes,
                                        const std::set<int>& not_compared) {
  std::vector<std::string> different;
  BareTraining bare(job.places().logs);
  for (const auto& [rank, content] : job.steps()) {
    if (not_compared.count(rank) != 0) continue;
    const std::string who = job.options().launch_id + " rank " + std::to_string(rank);
    const auto code = codes.at(rank);
    if (code != 0)
      different.push_back(who + (code ? " ended with " + std::to_string(*code) : " does not end"));
    if (!content.end || content.lines.empty()) continue;
    const std::int64_t last = content.lines.back().step;
    const StepLogContent& plain = bare.run(content.start, last);
    if (content.end->parameters != plain.parameters.at(last))
      different.push_back(who + " has other parameters than without gradmon");
    if (content.end->rand_and_umask != plain.end->rand_and_umask)
      different.push_back(who + ": rand() and umask are " + content.end->rand_and_umask + ", not " +
                          plain.end->rand_and_umask);
  }
  return different;
}

}  // namespace gradmon
