// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "control/net/command_client.h"
#include "control/net/discovery.h"
#include "control/net/process_identity.h"
#include "tools/benchmarks/benches.h"
#include "tools/benchmarks/crowd.h"
#include "tools/benchmarks/local_rank.h"
#include "tools/benchmarks/range.h"
#include "tools/benchmarks/scratch_job.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kProcesses = 3;

// Rank 0 is a real one; the others are crowds. All fences are far away (256 steps
// of 40 ms), so that nobody waits at one and doubts.
class BigJob {
 public:
  explicit BigJob(int members)
      : job_(R"({"dynamic_on": false, "collect_times": 1000000, "lookahead_steps": 256})") {
    AgentOptions options;
    options.rank = Rank{0};
    options.world_size = members;
    options.launcher_id = random_hex(4);
    options.output_dir = job_.output();
    options.config_path = job_.config();
    rank0_ = std::make_unique<LocalRank>(options, Clock::now(), milliseconds(40), times_);
    await_rank0();
    const int others = members - 1;
    for (int i = 0; i < kProcesses; ++i) {
      const int first = 1 + others * i / kProcesses;
      const int end = 1 + others * (i + 1) / kProcesses;
      crowds_.push_back(std::make_unique<Crowd>(
          CrowdArguments{endpoint_, options.launcher_id, members, first, end - first}));
    }
    change();
  }

  struct Agreement {
    double milliseconds = 0;
    double letters = 0;
  };
  // One change by command, until every member has heard the verdict.
  Agreement change() {
    on_ = !on_;
    const SteadyTime begin = Clock::now();
    Command command;
    command.verb = on_ ? CommandVerb::on : CommandVerb::off;
    command.request_id = random_hex(8);
    const auto reply = CommandClient(endpoint_).ask(command, std::chrono::seconds(60));
    if (!reply) throw std::runtime_error(reply.error());
    std::int64_t heard = 0;
    std::uint64_t letters = 0;
    for (const auto& crowd : crowds_) {
      const CrowdReport report = crowd->next();
      heard = std::max(heard, report.heard_ns);
      letters += report.letters;
    }
    const double taken = static_cast<double>(heard) -
                         static_cast<double>(std::chrono::nanoseconds(begin.time_since_epoch()).count());
    return {taken / 1e6, static_cast<double>(letters - std::exchange(letters_, letters))};
  }

 private:
  void await_rank0() {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (endpoint_.empty()) {
      if (Clock::now() > deadline) throw std::runtime_error("rank 0 did not come up");
      std::this_thread::sleep_for(milliseconds(10));
      const auto jobs = read_jobs(job_.output());
      if (jobs && !jobs->empty()) endpoint_ = jobs->front().endpoint;
    }
  }

  const ScratchJob job_;
  VerdictTimes times_;
  std::unique_ptr<LocalRank> rank0_;
  std::string endpoint_;
  std::vector<std::unique_ptr<Crowd>> crowds_;
  bool on_ = false;
  std::uint64_t letters_ = 0;
};

struct Sample {
  Range milliseconds;
  double letters = 0;  // for each member
};

// None where the members do not agree in time.
std::optional<Sample> sample(int members, int changes) try {
  BigJob job(members);
  std::vector<double> times;
  std::vector<double> letters;
  for (int i = 0; i < changes; ++i) {
    const auto agreement = job.change();
    times.push_back(agreement.milliseconds);
    letters.push_back(agreement.letters / (members - 1));
  }
  return Sample{range_of(times), range_of(letters).median};
} catch (const std::runtime_error&) {
  return std::nullopt;
}

std::vector<Figure> measure(Effort effort) {
  const bool quick = effort == Effort::quick;
  const std::vector<int> sizes =
      quick ? std::vector<int>{16, 64, 256} : std::vector<int>{16, 256, 1024, 4096};
  const int changes = quick ? 2 : 5;
  Figure figure;
  figure.name = "ranks_simulated";
  figure.how =
      "from a command until all members know the verdict, over the real bus, rank 0 real and the others in " +
      std::to_string(kProcesses) + " processes, 128 to a connection; minimum, median and maximum of " +
      std::to_string(changes);
  for (const int members : sizes) {
    const auto sampled = sample(members, changes);
    if (!sampled) {
      figure.how += "; " + std::to_string(members) + " members: no agreement within a minute";
      break;
    }
    figure.how += "; " + std::to_string(members) + " members: " + text_of(sampled->milliseconds) + " ms, " +
                  text_of(sampled->letters) + " letters each";
    figure.value = sampled->milliseconds.median;
    figure.unit = "ms for " + std::to_string(members) + " members";
  }
  if (figure.unit.empty()) throw std::runtime_error(figure.how);
  return {figure};
}

}  // namespace

Bench ranks_simulated() { return {{"ranks_simulated"}, measure}; }

}  // namespace gradmon
