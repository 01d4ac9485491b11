// SPDX-License-Identifier: Apache-2.0
// print-launch-id [--train] [--late MILLISECONDS]: prints the launch id that a rank
// started in this environment finds, and its source; or `-` and the reason, if it finds
// none within 20 s. With --train it opens training's store at MASTER_ADDR, as
// init_process_group() does: rank 0 serves the store. --late delays rank 0.
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "control/link/launch_id_search.h"
#include "runtime/launch_id.h"
#include "tests/support/refuse_libuv.h"

namespace {

using gradmon::Environment;
using std::chrono::milliseconds;

constexpr milliseconds kSearchTimeout{20'000};

milliseconds now() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
}

c10::intrusive_ptr<c10d::TCPStore> training_store(const Environment& environment) {
  const bool by_agent = gradmon::from_process("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  c10d::TCPStoreOptions options;
  options.port = environment.store->port;
  options.isServer = environment.rank.value == 0 && !by_agent;
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(20);
  gradmon::refuse_libuv(options, 0);
  return c10::make_intrusive<c10d::TCPStore>(environment.store->host, options);
}

// Rank 0 serves the store until all ranks have called this.
void serve_until_all_ranks_are_done(c10d::TCPStore& store, const Environment& environment) {
  auto here = store.add("print-launch-id/finished", 1);
  while (environment.rank.value == 0 && here < environment.world_size) {
    std::this_thread::sleep_for(milliseconds(20));
    here = store.add("print-launch-id/finished", 0);
  }
}

std::string launch_id_line(const Environment& environment) {
  gradmon::LaunchEnvironment world;
  world.open_store = [](const gradmon::StoreAddress& address) { return gradmon::open_torch_store(address); };
  world.parent = gradmon::parent_process;
  const auto source = gradmon::find_launch_id(environment, 1, world);
  if (source.known) return source.known->id + " from " + source.known->source;
  if (!source.ask) return "- " + source.reason;
  const milliseconds start = now();
  gradmon::LaunchIdSearch search(source.ask, start);
  while (now() - start < kSearchTimeout) {
    if (const auto id = search.poll(now())) return id->id + " from " + id->source;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return "- " + source.reason + "; " + search.last_error();
}

}  // namespace

int main(int argc, char** argv) {
  bool trains = false;
  milliseconds late{0};
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--train") == 0) trains = true;
    if (std::strcmp(argv[i], "--late") == 0 && i + 1 < argc) late = milliseconds(std::stoi(argv[++i]));
  }
  const auto environment = gradmon::read_environment(gradmon::from_process);
  if (!environment) {
    std::cerr << environment.error() << '\n';
    return 2;
  }
  c10::intrusive_ptr<c10d::TCPStore> store;
  std::thread training;  // opens the store while launch_id_line() searches
  if (trains) {
    training = std::thread([&] {
      if (environment->rank.value == 0) std::this_thread::sleep_for(late);
      store = training_store(*environment);
    });
  }
  std::cout << launch_id_line(*environment) + "\n" << std::flush;
  if (!trains) return 0;
  training.join();
  serve_until_all_ranks_are_done(*store, *environment);
  return 0;
}
