// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <thread>

#include "control/net/command_client.h"
#include "control/net/discovery.h"
#include "control/net/process_identity.h"
#include "tools/benchmarks/benches.h"
#include "tools/benchmarks/local_rank.h"
#include "tools/benchmarks/range.h"
#include "tools/benchmarks/scratch_job.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRanks = 8;
constexpr std::chrono::microseconds kPace{1000};
// A save that comes sooner after another waits for it: ConfigFile takes four a second.
constexpr milliseconds kBetweenSaves{270};
constexpr milliseconds kBetweenCommands{30};

std::string config_text(bool on, int number) {
  return std::string(R"({"dynamic_on": )") + (on ? "true" : "false") +
         R"(, "collect_times": 1000000, "lookahead_steps": 1, "note": )" + std::to_string(number) + "}\n";
}

void write_in_place(const std::filesystem::path& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  const bool written =
      file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  if (!written) throw std::runtime_error("cannot write " + path.string());
}

class EightRanks {
 public:
  EightRanks() : job_(config_text(false, 0)) {
    AgentOptions options;
    options.world_size = kRanks;
    options.launcher_id = random_hex(4);
    options.output_dir = job_.output();
    options.config_path = job_.config();
    const SteadyTime zero = Clock::now();
    for (int rank = 0; rank < kRanks; ++rank) {
      options.rank = Rank{rank};
      ranks_.push_back(std::make_unique<LocalRank>(options, zero, kPace, times_));
    }
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (ranks_.front()->status().reason != "not asked for") {
      if (Clock::now() > deadline) throw std::runtime_error("eight ranks did not meet");
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  // Milliseconds from each of `count` changes until all ranks have heard the verdict on it.
  template <typename Change>
  std::vector<double> time(int count, milliseconds between, Change change) {
    std::vector<double> taken;
    for (int i = 0; i < count; ++i) {
      std::this_thread::sleep_for(between);
      on_ = !on_;
      const SteadyTime begin = change(on_, ++changes_);
      const auto [revision, heard] = times_.wait_for(kRanks, last_);
      last_ = revision;
      taken.push_back(std::chrono::duration<double, std::milli>(heard - begin).count());
    }
    return taken;
  }

  SteadyTime save_by_rename(bool on, int number) const {
    const std::filesystem::path aside = job_.config().string() + ".new";
    write_in_place(aside, config_text(on, number));
    const SteadyTime begin = Clock::now();
    std::filesystem::rename(aside, job_.config());
    return begin;
  }
  SteadyTime save_in_place(bool on, int number) const {
    const SteadyTime begin = Clock::now();
    write_in_place(job_.config(), config_text(on, number));
    return begin;
  }
  SteadyTime command(bool on) const {
    const auto jobs = read_jobs(job_.output());
    if (!jobs || jobs->empty()) throw std::runtime_error("the job is not in gradmon.json");
    Command command;
    command.verb = on ? CommandVerb::on : CommandVerb::off;
    command.request_id = random_hex(8);
    command.by = "gradmon-bench";
    const SteadyTime begin = Clock::now();
    CommandClient client(jobs->front().endpoint);
    const auto reply = client.ask(command, std::chrono::seconds(20));
    if (!reply) throw std::runtime_error(reply.error());
    if (reply->outcome != CommandOutcome::done) throw std::runtime_error(reply->message);
    return begin;
  }

 private:
  const ScratchJob job_;
  VerdictTimes times_;
  std::vector<std::unique_ptr<LocalRank>> ranks_;
  bool on_ = false;
  int changes_ = 0;
  Revision last_;
};

Figure figure_of(const std::string& way, const std::string& what, double goal,
                 const std::vector<double>& taken) {
  const Range range = range_of(taken);
  Figure figure;
  figure.name = "commit_ms_" + way;
  figure.value = range.median;
  figure.unit = "ms";
  figure.goal = Goal{Goal::Sense::at_most, goal};
  figure.how =
      what +
      ", until 8 local ranks with steps of 1 ms know the verdict: median; minimum, median and worst of " +
      std::to_string(taken.size()) + ": " + text_of(range);
  return figure;
}

std::vector<Figure> measure(Effort effort) {
  const int count = effort == Effort::quick ? 4 : 100;
  EightRanks job;
  const auto renamed =
      job.time(count, kBetweenSaves, [&](bool on, int i) { return job.save_by_rename(on, i); });
  const auto commanded = job.time(count, kBetweenCommands, [&](bool on, int) { return job.command(on); });
  const auto written =
      job.time(count, kBetweenSaves, [&](bool on, int i) { return job.save_in_place(on, i); });
  return {figure_of("rename", "from the rename of a saved config", 20, renamed),
          figure_of("ctl", "from what gradmonctl sends (its own start left out)", 20, commanded),
          figure_of("inplace", "from the beginning of a save in place", 150, written)};
}

}  // namespace

Bench commit_time() { return {{"commit_ms_rename", "commit_ms_ctl", "commit_ms_inplace"}, measure}; }

}  // namespace gradmon
