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
#include "tests/whole/badinput/one_agent_job.h"

namespace gradmon {

// One rank of a two-rank OneAgentJob, whose messages the test chooses; over one Unix
// stream to the job's hub. While it waits it sends Progress, as an agent does: the
// coordinator asks nothing of a rank that was silent for 2.5 s.
class ScriptedRank {
 public:
  // Connects and sends its Introduction.
  ScriptedRank(const OneAgentJob& job, Rank rank);

  // Sends the Hello of an honest rank, with this version, and waits for the answer.
  Welcome send_hello(std::uint32_t version = kProtocolVersion);
  // send_hello() and become a member. Throws if the hub refuses.
  void join();
  void send(Message message) { send_as(rank_, std::move(message)); }
  void send_as(Rank rank, Message message);
  void send_raw(const std::string& bytes);
  // Waits for the next message of this kind and skips others. Throws if none comes.
  template <class Kind>
  Kind receive();
  // Waits until the hub has read everything sent so far.
  void wait_until_read();
  // Waits for the hub to close the connection; false if it does not.
  bool wait_for_close();

  std::string epoch;  // of the messages it sends
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
Kind ScriptedRank::receive() {
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
