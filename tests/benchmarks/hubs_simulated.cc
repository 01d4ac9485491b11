// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>

#include "control/client/command_client.h"
#include "control/host/process_identity.h"
#include "control/hub/keys/keygen.h"
#include "control/hub/rendezvous/job_entry.h"
#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/local_rank.h"
#include "tests/benchmarks/measure/range.h"
#include "tests/benchmarks/measure/scratch_job.h"
#include "tests/benchmarks/simulated_hubs/simulated_hubs_process.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kProcesses = 3;
constexpr int kRanksPerHub = 8;

// Rank 0 is real and alone on its host; other processes simulate the other
// ranks. All fences are far away (256 steps of 40 ms), so that no rank waits at one.
class BigJob {
 public:
  explicit BigJob(int hubs)
      : job_(R"({"dynamic_on": false, "collect_times": 1000000, "lookahead_steps": 256})") {
    AgentOptions options;
    options.rank = Rank{0};
    options.world_size = 1 + hubs * kRanksPerHub;
    options.launch_id = random_hex(4);
    options.output_dir = job_.output();
    options.endpoint = "tcp://127.0.0.1:*";
    options.keys = (job_.output() / "keys").string();
    options.lead.config_path = job_.config().string();
    if (auto made = make_key_directory(options.keys); !made) throw std::runtime_error(made.error());
    socket_ = make_job_socket(options.launch_id).string();
    rank0_ = std::make_unique<LocalRank>(options, Clock::now(), milliseconds(40), times_);
    const std::string address = address_of_lead(options);
    const int processes = std::min(hubs, kProcesses);
    for (int i = 0; i < processes; ++i) {
      const int first = hubs * i / processes;
      const int end = hubs * (i + 1) / processes;
      processes_.push_back(std::make_unique<SimulatedHubsProcess>(
          SimulatedHubsArguments{address, options.keys, options.launch_id, options.world_size,
                                 1 + first * kRanksPerHub, end - first, kRanksPerHub}));
    }
    change();
  }

  struct Agreement {
    double milliseconds = 0;
    double messages = 0;
  };
  // Sends a command, and waits until every member has heard the verdict.
  Agreement change() {
    on_ = !on_;
    const SteadyTime begin = Clock::now();
    Command command;
    command.verb = on_ ? CommandVerb::on : CommandVerb::off;
    command.request_id = random_hex(8);
    const auto reply = CommandClient("ipc://" + socket_).ask(command, std::chrono::seconds(60));
    if (!reply) throw std::runtime_error(reply.error());
    if (reply->outcome != CommandOutcome::done) throw std::runtime_error(reply->message);
    std::int64_t heard = 0;
    std::uint64_t messages = 0;
    for (const auto& process : processes_) {
      const SimulatedHubsReport report = process->next();
      heard = std::max(heard, report.heard_ns);
      messages += report.messages;
    }
    const double taken = static_cast<double>(heard) -
                         static_cast<double>(std::chrono::nanoseconds(begin.time_since_epoch()).count());
    return {taken / 1e6, static_cast<double>(messages - std::exchange(messages_, messages))};
  }

 private:
  static std::string address_of_lead(const AgentOptions& options) {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    for (;;) {
      if (const auto entry = find_entry(options.output_dir, options.launch_id)) return entry->address;
      if (Clock::now() > deadline) throw std::runtime_error("rank 0 did not come up");
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  const ScratchJob job_;
  VerdictTimes times_;
  std::unique_ptr<LocalRank> rank0_;
  std::string socket_;  // of the hub
  std::vector<std::unique_ptr<SimulatedHubsProcess>> processes_;
  bool on_ = false;
  std::uint64_t messages_ = 0;
};

struct Sample {
  Range milliseconds;
  double messages = 0;  // per hub
};

// Throws std::runtime_error.
Sample sample(int hubs, int changes) {
  BigJob job(hubs);
  std::vector<double> times;
  std::vector<double> messages;
  for (int i = 0; i < changes; ++i) {
    const auto agreement = job.change();
    times.push_back(agreement.milliseconds);
    messages.push_back(agreement.messages / hubs);
  }
  return Sample{range_of(times), range_of(messages).median};
}

std::vector<Figure> measure(Effort effort) {
  const bool quick = effort == Effort::quick;
  const std::vector<int> sizes = quick ? std::vector<int>{2, 8} : std::vector<int>{2, 32, 256, 2048};
  const int changes = quick ? 2 : 5;
  Figure figure;
  figure.name = "hubs_simulated";
  figure.goal = Goal{Goal::Sense::at_most, 1000};
  figure.how =
      "from a command until all ranks know the verdict; the lead hub and rank 0 are real, the other hubs, " +
      std::to_string(kRanksPerHub) + " ranks each, share " + std::to_string(kProcesses) +
      " processes, each with its connection with keys; minimum, median and maximum of " +
      std::to_string(changes);
  for (const int hubs : sizes) {
    const std::string size =
        std::to_string(hubs) + " hubs, " + std::to_string(hubs * kRanksPerHub) + " ranks";
    try {
      const Sample sampled = sample(hubs, changes);
      figure.how += "; " + size + ": " + text_of(sampled.milliseconds) + " ms, " + text_of(sampled.messages) +
                    " messages a hub";
      figure.value = sampled.milliseconds.median;
      figure.unit = "ms for " + size;
    } catch (const std::runtime_error& error) {
      figure.how += "; " + size + ": " + error.what();
      figure.met = false;
      break;
    }
  }
  if (figure.unit.empty()) throw std::runtime_error(figure.how);
  return {figure};
}

}  // namespace

Bench hubs_simulated() { return {{"hubs_simulated"}, measure}; }

}  // namespace gradmon
