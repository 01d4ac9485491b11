// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/tensorboard/convert_to_tensorboard.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <vector>

#include "tools/convert/input/on_threads.h"
#include "tools/convert/tensorboard/event_directory.h"

namespace gradmon {
namespace {

struct Outcome {
  Problems problems;
  std::string error;  // empty: none
};

std::string convert(const ConversionTask& task, const std::filesystem::path& output, TagForm form,
                    ConversionMeter& meter, Problems& problems) {
  try {
    Problems reported_already;
    const std::vector<InputFile> files = task.files(reported_already);
    RankRows rows(files, meter, problems);
    EventDirectory directory(output / ("rank" + std::to_string(task.rank->rank)) / name_of(task.kind),
                             task.kind, form);
    const auto written = directory.write(rows);
    return written ? "" : written.error();
  } catch (const std::exception& error) {  // of the standard library: out of memory
    return std::string("cannot convert ") + name_of(task.kind) + " of rank " +
           std::to_string(task.rank->rank) + ": " + error.what();
  }
}

}  // namespace

tl::expected<void, std::string> convert_to_tensorboard(const ConversionTasks& tasks,
                                                       const std::filesystem::path& output, TagForm form,
                                                       int threads, ConversionMeter& meter,
                                                       Problems& problems) {
  std::vector<Outcome> outcomes(tasks.tasks.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < outcomes.size() && !meter.stop; i = next++) {
      outcomes[i].error = convert(tasks.tasks[i], output, form, meter, outcomes[i].problems);
      if (!outcomes[i].error.empty()) meter.stop = true;
    }
  };
  { const OnThreads workers(std::min(static_cast<std::size_t>(threads), outcomes.size()), work); }
  for (const Outcome& outcome : outcomes) problems.add(outcome.problems);
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(),
                                   [](const Outcome& outcome) { return !outcome.error.empty(); });
  if (failed != outcomes.end()) return tl::unexpected(failed->error);
  return {};
}

}  // namespace gradmon
