// SPDX-License-Identifier: Apache-2.0
// gradmonctl convert as a process, from its start to its end.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/measure/range.h"
#include "tests/benchmarks/measure/scratch_job.h"
#include "writers/sinks/csv/csv_sink.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kRowsOfStep = 1000;
constexpr std::size_t kOpsOfRow = 6;
constexpr std::chrono::milliseconds kLookInterval{20};

// Writes a job of one rank: gradients of a thousand parameters, six ops, a hundred steps a file.
void write_job(const fs::path& output, std::int64_t steps) {
  const auto names = std::make_shared<NameTable>();
  CsvSink sink([&] { return output / "Nov24_12-04-37-rank0-1a2b3c4d"; }, names);
  Layout layout;
  layout.ops = {Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros};
  layout.step_count_per_record = 100;
  if (!sink.begin_revision(layout)) throw std::runtime_error("the CSV sink does not begin");
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<Record> rows(kRowsOfStep);
  for (std::size_t i = 0; i < kRowsOfStep; ++i) {
    rows[i].kind = Kind::grad_reduced;
    rows[i].sequence = i;
    rows[i].target =
        names->intern("layers." + std::to_string(i / 10) + ".mlp.fc" + std::to_string(i % 10) + ".weight");
    rows[i].shape = names->intern("[4096, 1024]");
    rows[i].dtype = DType::bfloat16;
    rows[i].mask = (1U << kOpsOfRow) - 1;
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    for (Record& row : rows) {
      row.step = step;
      for (const Op op : {Op::norm, Op::min, Op::max, Op::mean})
        row.values[static_cast<std::size_t>(op)] = normal(random);
    }
    if (auto written = sink.write_step(Step{step}, rows); !written)
      throw std::runtime_error(written.error().text);
  }
}

struct Measured {
  double seconds = 0;
  double peak_mib = 0;
};

// The largest resident size of a process so far, in MiB; 0 if it has ended.
double peak_mib_of(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  long kib = 0;
  for (std::string line; std::getline(status, line);) {
    if (std::sscanf(line.c_str(), "VmHWM: %ld", &kib) == 1) break;
  }
  return static_cast<double>(kib) / 1024;
}

// Reads the memory of the process while it runs: wait4() would count the memory of this process, too.
Measured convert(const std::string& command, const fs::path& input, const fs::path& output) {
  const std::string program = fs::read_symlink("/proc/self/exe").parent_path() / "gradmonctl";
  std::vector<std::string> words = {program,        "convert",          command,        "--monitor-path",
                                    input.string(), "--output-dirpath", output.string()};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const auto begin = Clock::now();
  pid_t process = -1;
  const int error = ::posix_spawn(&process, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::system_error(error, std::generic_category(), program);
  Measured measured;
  int status = 0;
  while (::waitpid(process, &status, WNOHANG) == 0) {
    measured.peak_mib = std::max(measured.peak_mib, peak_mib_of(process));
    std::this_thread::sleep_for(kLookInterval);
  }
  measured.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (status != 0) throw std::runtime_error("gradmonctl convert " + command + " failed");
  return measured;
}

Figure rate_of(const std::string& command, const fs::path& input, const fs::path& scratch, std::int64_t steps,
               int repetitions) {
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) {
    const fs::path output = scratch / (command + std::to_string(i));
    rates.push_back(static_cast<double>(steps) * kRowsOfStep / convert(command, input, output).seconds);
    fs::remove_all(output);
  }
  const Range range = range_of(rates);
  Figure figure;
  figure.name = "rows_per_s_" + command;
  figure.value = range.median;
  figure.unit = "rows/s";
  figure.goal = Goal{Goal::Sense::at_least, 3e5};
  figure.how = "gradmonctl convert " + command + ", one process, --process-num 1, " +
               std::to_string(steps * static_cast<std::int64_t>(kRowsOfStep)) +
               " rows of six ops of one rank; minimum, median and maximum of " + std::to_string(repetitions) +
               ": " + text_of(range);
  return figure;
}

Figure memory_of(const std::string& command, const fs::path& input, const fs::path& scratch,
                 std::int64_t steps) {
  const Measured measured = convert(command, input, scratch / command);
  fs::remove_all(scratch / command);
  Figure figure;
  figure.name = command + "_peak_mib";
  figure.value = measured.peak_mib;
  figure.unit = "MiB";
  figure.goal = Goal{Goal::Sense::at_most, 256};
  figure.how = "the same with " + std::to_string(steps * static_cast<std::int64_t>(kRowsOfStep)) +
               " rows: largest resident size, looked at every " + std::to_string(kLookInterval.count()) +
               " ms, in " + std::to_string(measured.seconds) + " s";
  return figure;
}

std::vector<Figure> measure(Effort effort) {
  const bool quick = effort == Effort::quick;
  const std::int64_t steps = quick ? 50 : 1000;
  const std::int64_t many_steps = quick ? 100 : 10'000;
  std::vector<Figure> figures;
  {
    const ScratchJob scratch("{}");
    write_job(scratch.output(), steps);
    for (const char* command : {"csv2tb", "csv2db"})
      figures.push_back(
          rate_of(command, scratch.output(), scratch.config().parent_path(), steps, quick ? 2 : 7));
  }
  const ScratchJob scratch("{}");
  write_job(scratch.output(), many_steps);
  for (const char* command : {"csv2tb", "csv2db"})
    figures.push_back(memory_of(command, scratch.output(), scratch.config().parent_path(), many_steps));
  return figures;
}

}  // namespace

Bench conversion_rate() {
  return {{"rows_per_s_csv2tb", "rows_per_s_csv2db", "csv2tb_peak_mib", "csv2db_peak_mib"}, measure};
}

}  // namespace gradmon
