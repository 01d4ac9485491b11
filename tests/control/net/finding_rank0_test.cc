// SPDX-License-Identifier: Apache-2.0
// Ranks that find no rank 0, a dead one, or one that cannot be reached: real
// agents, with trainers that only count.
#include <atomic>
#include <thread>

#include "control/debian_version.h"
#include "control/net/agent.h"
#include "control/net/bus.h"
#include "control/net/discovery.h"
#include "control/net/process_identity.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kSoon{20'000};
constexpr std::chrono::milliseconds kPause{1};  // the length of a step

class CountingRank {
 public:
  explicit CountingRank(AgentOptions options)
      : gate_(options.start_iteration), agent_(std::move(options), gate_, calls()) {
    trainer_ = std::thread([this] { train(); });
  }
  ~CountingRank() {
    stopping_ = true;
    trainer_.join();
  }
  Agent& agent() { return agent_; }
  bool trains_on() {
    return eventually([this] { return steps_ > 20; });
  }

 private:
  static AgentCalls calls() {
    return {[](const Plan&) -> tl::expected<std::int64_t, std::string> { return 1; },
            [] { return CollectingReport{}; }, [] { return std::filesystem::path{}; }};
  }
  void train() {
    Step n;
    for (; !stopping_; n = n + 1) {
      if (!gate_.try_begin(n)) gate_.begin_or_wait(n, [this] { return stopping_.load(); });
      if (n == Step{}) agent_.start();
      steps_ += 1;
      std::this_thread::sleep_for(kPause);
    }
    agent_.stop(n);
  }

  std::atomic<bool> stopping_{false};
  std::atomic<int> steps_{0};
  StepGate gate_;
  Agent agent_;
  std::thread trainer_;
};

struct Launch {
  const TemporaryDirectory directory;
  AgentOptions options(int rank) const {
    AgentOptions made;
    made.rank = Rank{rank};
    made.world_size = 2;
    made.launcher_id = "launch";
    made.output_dir = directory.path();
    made.config_path = directory / "monitor_config.json";
    made.loopback = InsecureLoopback::allowed;
    return made;
  }
  // Of an earlier rank 0 on another host, which nobody here can see to be dead.
  void leave_entry(const std::string& endpoint) const {
    REQUIRE(add_job(directory.path(), {"stale", "launch", endpoint, "", "elsewhere", 1, 1, 1}));
  }
};

bool share_a_job(CountingRank& one, CountingRank& other) {
  return eventually([&] {
    const auto first = one.agent().job();
    const auto second = other.agent().job();
    return first && second && first->epoch == second->epoch;
  });
}

TEST_CASE("where rank 0 has no network no rank waits for an answer") {
  const Launch launch;
  AgentOptions refused = launch.options(0);
  refused.endpoint = "tcp://0.0.0.0:5555";
  CountingRank rank0(refused);
  CountingRank rank1(launch.options(1));
  REQUIRE(rank0.trains_on());
  REQUIRE(rank1.trains_on());
  REQUIRE(live_jobs(*read_jobs(launch.directory.path())).empty());
}

TEST_CASE("a rank that asked a dead rank 0 asks the next one") {
  const Launch launch;
  auto dead = *Bus::listen("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
  launch.leave_entry(dead->endpoint());
  CountingRank rank1(launch.options(1));
  REQUIRE(dead->poll(kSoon, -1));
  CountingRank rank0(launch.options(0));
  REQUIRE(share_a_job(rank0, rank1));
}

TEST_CASE("a rank trains on beside a rank 0 out of its reach and joins the next one") {
  const Launch launch;
  launch.leave_entry("ipc:///nowhere/control");
  CountingRank rank1(launch.options(1));
  REQUIRE(rank1.trains_on());
  CountingRank rank0(launch.options(0));
  REQUIRE(share_a_job(rank0, rank1));
}

}  // namespace
}  // namespace gradmon
