// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "control/agree/message.h"
#include "tests/control/net/lone_rank.h"

namespace gradmon {

class Bus;

// A rank of a LoneRank's job that says what the test wants it to say.
class RankByHand {
 public:
  RankByHand(const LoneRank& rank0, Rank rank);
  ~RankByHand();

  // A Hello as an honest rank of a job of two sends it, but for its version.
  Welcome say_hello(std::uint32_t version = kProtocolVersion);
  // say_hello(), and that it sees the register: it is a member then.
  void join();
  void say(Message message);
  // The next letter of this kind; those of others are skipped. Throws where none comes.
  template <class Kind>
  Kind hear();
  void send_raw(const std::string& bytes);

  std::string epoch;  // of the letters it sends
  std::uint64_t incarnation = 0;

 private:
  Letter next_letter();

  const std::string launcher_id_;
  const std::string process_id_;
  const Rank rank_;
  const std::unique_ptr<Bus> bus_;
};

template <class Kind>
Kind RankByHand::hear() {
  for (;;) {
    Letter letter = next_letter();
    if (auto* wanted = std::get_if<Kind>(&letter.message)) {
      epoch = letter.epoch;
      incarnation = letter.incarnation;
      return std::move(*wanted);
    }
  }
}

}  // namespace gradmon
