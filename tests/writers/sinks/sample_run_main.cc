// SPDX-License-Identifier: Apache-2.0
// tensorboard-sample-run DIRECTORY BYTES [csv]: writes the sample run as event files of at most BYTES bytes
// each, and as CSV files. Prints the number of rows sent, written to event files, and lost.
#include <iostream>

#include "tests/writers/sinks/sample_run.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/csv_sink.h"
#include "writers/sinks/tensorboard_sink.h"

namespace gradmon {
namespace {

constexpr Pauses kNoPause{std::chrono::milliseconds(0), std::chrono::milliseconds(0)};

int write_run(const std::filesystem::path& directory, std::uint64_t bytes, bool csv) {
  const SampleRun run;
  const auto find_directory = [directory] { return directory; };
  std::uint64_t sent = 0;
  RetryingSink::Outcome sum;
  for (std::uint64_t revision = 1; revision <= 2; ++revision) {
    const Layout layout = run.layout(revision);
    RetryingSink events(std::make_unique<TensorBoardSink>(TensorBoardSink::Settings{
                            find_directory, run.names(), Rank{2}, run.config(revision), bytes}),
                        layout, kNoPause);
    RetryingSink rows(std::make_unique<CsvSink>(find_directory, run.names()), layout, kNoPause);
    const auto first = static_cast<std::int64_t>(revision - 1) * SampleRun::kStepsOfARevision;
    for (std::int64_t step = first; step < first + SampleRun::kStepsOfARevision; ++step) {
      const std::vector<Record> records = run.rows(step);
      const auto outcome = events.write(Step{step}, records, {});
      if (csv) rows.write(Step{step}, records, {});
      sent += records.size();
      sum.written += outcome.written;
      sum.lost += outcome.lost;
    }
  }
  std::cout << sent << " " << sum.written << " " << sum.lost << std::endl;
  return 0;
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  return gradmon::write_run(argv[1], std::stoull(argv[2]), argc > 3 && argv[3] == std::string("csv"));
}
