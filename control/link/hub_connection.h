// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/host/frame_stream.h"
#include "control/host/job_directory.h"
#include "control/link/closed_in_children.h"
#include "control/link/start_hub.h"

namespace gradmon {

// A rank's one connection, to the hub of its host; starts that hub where there is
// none. Never waits but for the start of a process. One thread: the agent.
class HubConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // What of the environment is needed, taken once on the training thread.
  struct Place {
    JobBases bases;
    tl::expected<std::filesystem::path, std::string> program;
    std::vector<std::string> environment;
  };
  static Place place(const EnvironmentLookup& environment);

  // Of several processes that find no hub each waits `before_starting` for another to
  // start it.
  HubConnection(std::string launch_id, Place place, std::chrono::milliseconds before_starting);
  HubConnection(const HubConnection&) = delete;
  HubConnection& operator=(const HubConnection&) = delete;

  // Connects where there is no connection and the pause since the last try is over
  // (20 ms for the first seconds, then 1 s), and starts a hub where there is none and
  // the one started last had its time (0.1 s, 0.2 s … 1 s). True: there is a new connection.
  bool connect_if_due(Clock::time_point now);
  bool connected() const { return stream_ != nullptr; }
  int fd() const { return stream_ ? stream_->fd() : -1; }
  bool wants_write() const { return stream_ && stream_->wants_write(); }
  // False: the frame is lost, since there is no connection, the hub has gone or has
  // left too much unread. A connection ends in serve() alone: what the hub said
  // before it went is still to be heard, and one that lives is never closed by this side.
  bool send(std::string_view frame);
  // Hands out what has come, and writes what waits. False: the connection is lost.
  bool serve(const FrameStream::OnFrame& on_frame);
  // Why there is no connection; "" where there is one.
  const std::string& trouble() const { return trouble_; }
  // Whether no hub could be started for so long that none may be expected.
  bool gave_up_starting() const {
    return failed_starts_ >= kMostFailedStarts || starts_ >= 2 * kMostFailedStarts;
  }

 private:
  static constexpr int kMostFailedStarts = 4;

  tl::expected<void, std::string> try_to_connect(Clock::time_point now);
  tl::expected<void, std::string> start_one(const JobDirectory& directory);
  void lose(std::string why);

  // Constant after construction.
  const std::string launch_id_;
  const Place place_;
  const std::chrono::milliseconds before_starting_;

  std::unique_ptr<FrameStream> stream_;  // null: not connected
  std::optional<ClosedInChildren> closed_in_children_;
  std::string trouble_ = "not connected yet";
  std::string start_trouble_;  // why no hub could be started, last time
  // In a row, since there was a connection.
  int tries_ = 0;
  int starts_ = 0;
  int failed_starts_ = 0;
  Clock::time_point next_try_;
  Clock::time_point next_start_;
};

}  // namespace gradmon
