// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "control/agree/message.h"
#include "control/host/frame_stream.h"
#include "control/wire/messages.h"
#include "tests/whole/badinput/agent_job.h"

namespace gradmon {

// A rank of an AgentJob of two that says what the test wants it to say, over one
// Unix stream to the job's hub. Like an agent it sends a Progress while it waits:
// a rank that is not heard for 2.5 s is asked for nothing.
class RankByHand {
 public:
  // Introduces itself.
  RankByHand(const AgentJob& job, Rank rank);

  // A Hello as an honest rank sends it, but for its version.
  Welcome send_hello(std::uint32_t version = kProtocolVersion);
  // send_hello(), and it must be welcome: it is a member then.
  void join();
  void say(Message message) { say_as(rank_, std::move(message)); }
  void say_as(Rank rank, Message message);
  void send_raw(const std::string& bytes);
  // The next message of this kind; others are skipped. Throws where none comes.
  template <class Kind>
  Kind hear();
  // Until the hub has read all that was said.
  void wait_until_heard();
  // Whether the hub closes the connection.
  bool is_cut_off();

  std::string epoch;  // of what it says
  std::uint64_t incarnation = 0;

 private:
  void read_for(std::chrono::milliseconds at_most);
  void report();
  Frame next_frame();

  const std::string launch_id_;
  const std::string process_id_;
  const Rank rank_;
  FrameStream stream_;
  bool open_ = true;
  std::deque<Frame> frames_;
  std::uint64_t number_ = 0;
  std::chrono::steady_clock::time_point next_report_;
};

template <class Kind>
Kind RankByHand::hear() {
  for (;;) {
    Frame frame = next_frame();
    auto* bundles = std::get_if<Bundles>(&frame);
    if (bundles == nullptr) continue;
    for (Bundle& bundle : *bundles) {
      auto* wanted = std::get_if<Kind>(&bundle.message);
      if (wanted == nullptr) continue;
      epoch = bundle.epoch;
      for (const auto& [rank, membership] : bundle.to) {
        if (rank == rank_.value) incarnation = membership;
      }
      return std::move(*wanted);
    }
  }
}

}  // namespace gradmon
