// SPDX-License-Identifier: Apache-2.0
// gradmon-bench-crowd: many members of a job in one process, for gradmon-bench.
#include <atomic>
#include <chrono>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "control/net/bus.h"
#include "control/net/messages.h"
#include "tools/benchmarks/crowd_member.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMembersOfConnection = 128;

// What all members of the process have heard. Any thread.
class Hearing {
 public:
  explicit Hearing(int members) : members_(members) {}

  void count_letter() { letters_.fetch_add(1, std::memory_order_relaxed); }
  void note(Revision revision) {
    const auto now = Clock::now().time_since_epoch();
    const std::lock_guard lock(mutex_);
    if (++heard_[revision.value] < members_) return;
    std::cout << CrowdReport{revision.value, std::chrono::nanoseconds(now).count(), letters_.load()}.line()
              << std::flush;
  }

 private:
  const int members_;
  std::atomic<std::uint64_t> letters_{0};
  std::mutex mutex_;
  std::map<std::uint64_t, int> heard_;  // guarded by mutex_
};

// Members that share a connection, and a thread.
class Connection {
 public:
  Connection(const CrowdArguments& arguments, int first, int count, Hearing& hearing)
      : hearing_(hearing), first_(first) {
    auto bus = Bus::ask({kMostBytesDown});
    if (!bus) throw std::runtime_error(bus.error());
    bus_ = std::move(*bus);
    if (auto connected = bus_->connect(arguments.endpoint); !connected)
      throw std::runtime_error(connected.error());
    const auto send = [this](const Letter& letter) {
      if (!std::holds_alternative<Progress>(letter.message)) hearing_.count_letter();
      bus_->send("", encode(Frame(letter)));
    };
    for (int rank = first; rank < first + count; ++rank)
      members_.push_back(std::make_unique<CrowdMember>(arguments, Rank{rank}, send));
  }

  void run(const std::atomic<bool>& stopping) {
    for (const auto& member : members_) member->begin();
    auto ticked = Clock::now();
    for (std::size_t turn = 0; !stopping;) {
      if (auto incoming = bus_->poll(milliseconds(20), -1)) take(incoming->bytes);
      const auto now = Clock::now();
      if (now - ticked < milliseconds(100)) continue;
      const auto elapsed = std::chrono::floor<milliseconds>(now - ticked);
      ticked += elapsed;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        members_[i]->tick(elapsed);
        if (i % 10 == turn % 10) members_[i]->say_progress();
      }
      ++turn;
    }
  }

 private:
  void take(const std::string& bytes) {
    const auto frame = decode_frame(bytes);
    const auto* letter = frame ? std::get_if<Letter>(&*frame) : nullptr;
    if (letter == nullptr) return;
    hearing_.count_letter();
    const auto index = static_cast<std::size_t>(letter->rank.value - first_);
    if (index >= members_.size()) return;
    if (const auto heard = members_[index]->on_letter(*letter)) hearing_.note(*heard);
  }

  Hearing& hearing_;
  const int first_;
  std::unique_ptr<Bus> bus_;
  std::vector<std::unique_ptr<CrowdMember>> members_;
};

// Until standard input ends.
int run(const CrowdArguments& arguments) {
  Hearing hearing(arguments.members);
  std::atomic<bool> stopping{false};
  std::vector<std::unique_ptr<Connection>> connections;
  for (int done = 0; done < arguments.members; done += kMembersOfConnection) {
    const int count = std::min(kMembersOfConnection, arguments.members - done);
    connections.push_back(
        std::make_unique<Connection>(arguments, arguments.first_rank + done, count, hearing));
  }
  std::vector<std::thread> threads;
  for (const auto& connection : connections)
    threads.emplace_back([&connection, &stopping] { connection->run(stopping); });
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  stopping = true;
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  const auto arguments = gradmon::CrowdArguments::from({argv + 1, argv + argc});
  if (!arguments) {
    std::cerr << "gradmon-bench-crowd: started by gradmon-bench alone\n";
    return 2;
  }
  try {
    return gradmon::run(*arguments);
  } catch (const std::exception& error) {
    std::cerr << "gradmon-bench-crowd: " << error.what() << std::endl;
    return 1;
  }
}
