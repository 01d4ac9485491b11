// SPDX-License-Identifier: Apache-2.0
#include "tests/badinput/rank_by_hand.h"

#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "control/net/bus.h"
#include "control/net/messages.h"
#include "control/net/process_identity.h"

namespace gradmon {

RankByHand::RankByHand(const LoneRank& rank0, Rank rank)
    : launcher_id_(rank0.launcher_id()),
      process_id_(random_hex(16)),
      rank_(rank),
      bus_(*Bus::ask({kMostBytesDown})) {
  static_cast<void>(rank0.ask());  // A Hello that comes before it is open is lost: ranks repeat theirs.
  if (auto connected = bus_->connect(rank0.endpoint()); !connected)
    throw std::runtime_error(connected.error());
}

RankByHand::~RankByHand() = default;

Welcome RankByHand::say_hello(std::uint32_t version) {
  Hello hello;
  hello.launcher_id = launcher_id_;
  hello.world_size = 2;
  hello.host = host_name();
  hello.pid = getpid();
  hello.process_start = process_start_of(getpid());
  hello.process_id = process_id_;
  hello.version = version;
  epoch.clear();
  incarnation = 0;
  say(hello);
  return hear<Welcome>();
}

void RankByHand::join() {
  if (const Welcome welcome = say_hello(); !welcome.refused.empty())
    throw std::runtime_error(welcome.refused);
  Joined joined;
  joined.shares_directory = true;
  say(joined);
}

void RankByHand::say(Message message) {
  send_raw(encode(Frame(Letter{epoch, rank_, incarnation, std::move(message)})));
}

void RankByHand::send_raw(const std::string& bytes) { bus_->send("", bytes); }

Letter RankByHand::next_letter() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < until) {
    const auto incoming = bus_->poll(std::chrono::milliseconds(1000), -1);
    if (!incoming) continue;
    auto frame = decode_frame(incoming->bytes);
    if (auto* letter = frame ? std::get_if<Letter>(&*frame) : nullptr) return std::move(*letter);
  }
  throw std::runtime_error("rank 0 does not answer");
}

}  // namespace gradmon
