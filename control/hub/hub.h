// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "control/aliases.h"
#include "control/host/job_directory.h"
#include "control/host/mailbox.h"
#include "control/hub/lead.h"
#include "control/hub/relay.h"
#include "control/hub/transport/stream_server.h"
#include "control/wire/messages.h"

namespace gradmon {

// The process beside training, one per host and job. It serves the ranks of its host and gradmonctl over Unix
// streams. Rank 0's introduction makes it the lead hub, which decides; any other hub relays messages between
// its ranks and the lead hub. A relay ends after the last rank of its host has gone. The lead hub ends after
// the last rank of the job has gone and all due files are written. One thread.
class Hub final : private LocalPeers {
 public:
  // Takes the lock of the job's directory, then binds the socket. The error `taken`: another hub of this job
  // runs already. `publisher`: the program of a lead hub's AlertPublisher; empty: alerts are not published.
  static tl::expected<std::unique_ptr<Hub>, HubLock::Failure> open(JobDirectory directory,
                                                                   std::string launch_id,
                                                                   fs::path publisher = {});
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Returns when the work is done, or when another hub holds the directory. The caller handles SIGTERM and
  // SIGINT.
  void run();

 private:
  using Clock = std::chrono::steady_clock;

  // A connected rank of this host.
  struct LocalRank {
    Introduction introduction;
    std::string process_id;         // of its last Hello
    std::string epoch;              // of its membership
    std::uint64_t incarnation = 0;  // 0: not welcomed yet
    bool left = false;
  };

  Hub(JobDirectory directory, std::string launch_id, HubLock lock, std::unique_ptr<StreamServer> server,
      fs::path publisher);

  void turn(std::chrono::milliseconds at_most);
  void on_frame(Peer peer, std::string&& bytes);
  void on_closed(Peer peer, StreamServer::Closed how, const std::string& reason);
  void on_introduction(Peer peer, Introduction introduction);
  void on_bundle(Peer peer, Bundle bundle);
  void on_command(Peer peer, Command command);
  void become_lead(const Introduction& introduction);
  void on_store_notes(Peer peer, const StoreNotes& notes);
  void send(Peer peer, const Frame& frame);
  void deliver(const Bundle& bundle) override;
  void answer(const std::string& peer, const std::string& frame) override;
  void tell_rank0(LogLevel level, const std::string& text) override;
  void ask_store(const StoreNotes& notes) override;
  bool has_rank0() const override { return rank0_.has_value(); }
  std::size_t ranks() const override { return ranks_.size(); }
  void forget_hello(Peer peer, const std::string& process_id);
  void publish_state();
  void check_directory();
  void hand_over();
  void log_refused();
  bool finished() const;
  void clean_up();

  // Constant after construction.
  const std::string launch_id_;
  const std::shared_ptr<Mailbox> mailbox_;
  const fs::path publisher_;

  JobDirectory directory_;
  HubLock lock_;
  std::unique_ptr<StreamServer> server_;
  std::map<Peer, LocalRank> ranks_;
  std::map<std::string, Peer> hello_peers_;                   // by process id
  std::map<std::pair<int, std::uint64_t>, Peer> rank_peers_;  // by rank and incarnation
  std::optional<Peer> rank0_;                                 // gets the status; unset: not connected
  std::unique_ptr<Lead> lead_;                                // null: not the lead
  std::unique_ptr<Relay> relay_;  // null: this hub is the lead, or no rank has come yet
  std::string shown_trouble_;     // the relay's trouble last sent to its ranks
  bool replaced_ = false;         // another hub holds the directory
  Clock::time_point idle_since_;
  std::uint64_t refused_logged_ = 0;  // refused connections at their last log line
  Clock::time_point last_refused_line_;
  Clock::time_point last_look_;
  Clock::time_point last_state_;
};

}  // namespace gradmon
