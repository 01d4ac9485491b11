// SPDX-License-Identifier: Apache-2.0
// A rank's connection to the hub of its host, which it starts if none runs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/aliases.h"
#include "control/host/environment.h"
#include "control/host/job_directory.h"
#include "control/host/unix_stream.h"
#include "control/link/background_call.h"

namespace gradmon {

// Makes every forked child of this process close its copy of a descriptor. Otherwise the other end would not
// see the end of file as long as a child keeps its copy. Does not own the descriptor. At most 64 descriptors
// at a time; further descriptors are not closed. Any thread.
class ClosedInChildren {
 public:
  explicit ClosedInChildren(int fd);
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

 private:
  int slot_ = -1;  // -1: no slot was free
};

// A rank's only connection, which leads to the hub of its host. Starts that hub if none runs, as a
// BackgroundCall: the disk that holds its program may hang. Agent thread only; no member function blocks.
class HubConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // The connection's settings from the environment. Read once, on the training thread.
  struct Settings {
    JobBases bases;
    Result<fs::path> program;
    std::vector<std::string> environment;
  };
  static Settings read_settings(const EnvironmentLookup& environment);

  // A process that finds no hub waits `before_starting` for another rank to start it, then starts it
  // itself. Ranks pass different values, so that normally one of them starts it.
  HubConnection(std::string launch_id, Settings settings, std::chrono::milliseconds before_starting);
  HubConnection(const HubConnection&) = delete;
  HubConnection& operator=(const HubConnection&) = delete;

  // Without a connection, tries to connect, every 20 ms for the first 100 tries, then every 1 s. Tries during
  // a start do not count. If no hub runs, also starts one; the pauses between two starts are 0.1 s, 0.2 s … 1
  // s. A connection that is lost before welcomed() counts as a try. Returns true for a new connection.
  bool poll_connect(Clock::time_point now);
  // The lead hub has answered on this connection: resets the counts of tries and starts.
  void welcomed();
  bool connected() const { return stream_ != nullptr; }
  int fd() const { return stream_ ? stream_->fd() : -1; }
  bool wants_write() const { return stream_ && stream_->wants_write(); }
  // On false, the frame is lost: the connection is missing, the hub has closed it, or the hub has left too
  // many bytes unread. Never closes the connection: only process_io() does, after it has delivered all data
  // of the hub.
  bool send(std::string_view frame);
  // Writes queued frames and calls `on_frame` for each frame that has arrived. On false, the connection is
  // lost. If the stream is broken, this side closes it. The hub takes the closing for the rank's death, so
  // `before_closing` is called first.
  bool process_io(const FrameStream::OnFrame& on_frame, const std::function<void()>& before_closing);
  // True if the newest three connections were lost within 10 s. True once, until three more are lost.
  bool keeps_failing();
  // The reason why no connection exists, or "".
  const std::string& trouble() const { return trouble_; }
  // True if a start hangs, or several in a row have failed or led to no connection. poll_connect() goes on
  // trying.
  bool gave_up_starting() const {
    return !stream_ &&
           (start_hangs_ || failed_starts_ >= kMostFailedStarts || starts_ >= 2 * kMostFailedStarts);
  }

 private:
  static constexpr int kMostFailedStarts = 4;

  Result<void> try_to_connect(Clock::time_point now);
  void begin_start(const JobDirectory& directory, Clock::time_point now);
  void check_start(Clock::time_point now);
  void end_start(std::string error);
  void on_disconnect(std::string why, Clock::time_point now);
  void pause_before_next_try(Clock::time_point now);

  // Constant after construction.
  const std::string launch_id_;
  const Settings settings_;
  const std::chrono::milliseconds before_starting_;

  std::unique_ptr<FrameStream> stream_;  // null: not connected
  std::optional<ClosedInChildren> closed_in_children_;
  std::string trouble_ = "not connected yet";
  BackgroundCall<void> start_;
  Clock::time_point start_begun_;
  bool start_hangs_ = false;
  std::string start_error_;                // the reason why the last start of a hub failed or hangs, or ""
  bool welcomed_ = false;                  // this connection, or the newest
  std::vector<Clock::time_point> losses_;  // the newest ones, at most three
  // Counted since the last Welcome; a start counts once it has ended.
  int tries_ = 0;
  int starts_ = 0;
  int failed_starts_ = 0;
  Clock::time_point next_try_;
  Clock::time_point next_start_;
};

// Finds and starts gradmon-hub from within a training process. Returns errors even if the system has no
// descriptor, process or memory left.

// The path, with links resolved, of the file that contains this code: the training program or a shared
// library. Empty if it is unknown. Any thread.
fs::path own_object();

// Looks for `gradmon-hub` beside `object`, then in .., ../bin and ../lib of its directory, then at the
// absolute path in GRADMON_HUB. The error names every path tried. With process_environment: call this on
// the training thread, while the Monitor is constructed.
[[nodiscard]] Result<fs::path> find_hub_program(const EnvironmentLookup& environment = process_environment,
                                                const fs::path& object = own_object());

// This process's environment as NAME=VALUE, without LD_PRELOAD: libraries preloaded into training do not
// belong into the hub. No other thread may call setenv(3) meanwhile: call this on the training thread, while
// the Monitor is constructed. Hubs started later get this copy.
std::vector<std::string> hub_environment();

struct HubCommand {
  fs::path program;
  JobDirectory directory;              // its path is the first argument
  std::vector<std::string> arguments;  // the arguments after the path
  std::vector<std::string> environment;
  std::chrono::milliseconds most_wait{2000};
};

// Runs the program in its own session, with all signals unblocked and at their defaults, standard streams
// on /dev/null and no other descriptor. The program daemonises: it forks and its first process exits with
// status 0. This function waits for that exit, and kills the process after `most_wait`, so that training
// keeps no child. It waits for no other child. Success does not mean that a hub runs: connect to find
// out. If this process ignores SIGCHLD or reaps all its children, the exit status is unknown and counts as
// success. Blocks: exec also waits for the disk that holds the program. Any thread that may block.
[[nodiscard]] Result<void> start_hub(const HubCommand& command) noexcept;

}  // namespace gradmon
