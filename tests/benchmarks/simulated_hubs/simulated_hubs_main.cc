// SPDX-License-Identifier: Apache-2.0
// gradmon-bench-simulated-hubs: many hubs of a job in one process, for gradmon-bench.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/benchmarks/simulated_hubs/simulated_hub.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

// The lead hub can admit this many hubs at a time without a growing queue.
constexpr int kConnectInATurn = 8;
constexpr std::chrono::milliseconds kBetweenLooks{8};

// Counts the members of this process that have heard of each revision.
class VerdictCounter {
 public:
  explicit VerdictCounter(int members) : members_(members) {}

  // True: now all members have heard of the revision.
  bool note(Revision revision) { return ++heard_[revision.value] == members_; }

 private:
  const int members_;
  std::map<std::uint64_t, int> heard_;
};

class SimulatedHubs {
 public:
  explicit SimulatedHubs(const SimulatedHubsArguments& arguments)
      : verdicts_(arguments.hubs * arguments.ranks_per_hub) {
    for (int i = 0; i < arguments.hubs; ++i) {
      hubs_.push_back(std::make_unique<SimulatedHub>(arguments, i, [this](Revision revision) {
        if (verdicts_.note(revision)) report(revision);
      }));
    }
  }

  // Runs until standard input ends.
  void run() {
    auto ticked = Clock::now();
    for (int turn = 0;;) {
      if (!wait_and_serve()) return;
      const auto now = Clock::now();
      if (now - ticked < SimulatedHub::kTick) continue;
      ticked = now;
      connect_some();
      for (std::size_t i = 0; i < connected_; ++i) hubs_[i]->tick(turn + static_cast<int>(i));
      for (const auto& hub : hubs_) hub->turn();
      ++turn;
    }
  }

 private:
  // False: standard input has ended.
  bool wait_and_serve() {
    // Polling all hubs is expensive, so each poll handles the messages of several milliseconds.
    std::this_thread::sleep_for(kBetweenLooks);
    polled_.assign(1, {STDIN_FILENO, POLLIN, 0});
    ends_.clear();
    for (const auto& hub : hubs_) {
      hub->add_to(polled_);
      ends_.push_back(polled_.size());
    }
    ::poll(polled_.data(), polled_.size(), 5);
    if (polled_[0].revents != 0) return false;
    std::size_t begin = 1;
    for (std::size_t i = 0; i < hubs_.size(); begin = ends_[i++]) {
      const bool ready = std::any_of(polled_.begin() + static_cast<std::ptrdiff_t>(begin),
                                     polled_.begin() + static_cast<std::ptrdiff_t>(ends_[i]),
                                     [](const pollfd& one) { return one.revents != 0; });
      if (ready || hubs_[i]->has_to_say()) hubs_[i]->turn();
    }
    return true;
  }

  void report(Revision revision) const {
    const auto now = Clock::now().time_since_epoch();
    std::uint64_t messages = 0;
    for (const auto& hub : hubs_) messages += hub->messages();
    std::cout << SimulatedHubsReport{revision.value, std::chrono::nanoseconds(now).count(), messages}.line()
              << std::flush;
  }

  void connect_some() {
    for (int i = 0; i < kConnectInATurn && connected_ < hubs_.size(); ++i) hubs_[connected_++]->connect();
  }

  VerdictCounter verdicts_;
  std::vector<std::unique_ptr<SimulatedHub>> hubs_;
  std::size_t connected_ = 0;  // the first of hubs_, whose members have sent Hello
  std::vector<pollfd> polled_;
  std::vector<std::size_t> ends_;  // of each hub's part of polled_
};

int run(const SimulatedHubsArguments& arguments) {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  SimulatedHubs(arguments).run();
  return 0;
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  const auto arguments = gradmon::SimulatedHubsArguments::from({argv + 1, argv + argc});
  if (!arguments) {
    std::cerr << "gradmon-bench-simulated-hubs: started by gradmon-bench alone\n";
    return 2;
  }
  try {
    return gradmon::run(*arguments);
  } catch (const std::exception& error) {
    std::cerr << "gradmon-bench-simulated-hubs: " << error.what() << std::endl;
    return 1;
  }
}
