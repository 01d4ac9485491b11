// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/aliases.h"
#include "control/host/mailbox.h"
#include "control/host/rate_limits.h"
#include "control/hub/disk_thread.h"
#include "control/hub/local_peers.h"
#include "control/hub/transport/bus.h"
#include "control/hub/transport/curve_keys.h"
#include "control/hub/transport/rendezvous.h"
#include "control/wire/messages.h"

namespace gradmon {

// The part of a hub that is not the lead. It finds the lead hub of its job, sends it the messages of this
// host's ranks, several in one frame, and delivers the lead's messages to the ranks. While the lead does not
// answer, the relay looks for it: by GRADMON_ENDPOINT, by its entry in the output directory, and in
// training's store. The hub's thread.
class Relay {
 public:
  using Clock = std::chrono::steady_clock;

  // `introduction`: the introduction of any rank of this host. `peers` must outlive the relay.
  Relay(Introduction introduction, fs::path key_file, std::shared_ptr<Mailbox> mailbox, LocalPeers& peers);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Gathers the bundle. Sends the gathered bundles when every rank of this host has passed one on, at the
  // latest after 3 ms, or after 300 ms if all of them are Progress.
  void pass_on(Bundle bundle);
  void on_command(const std::string& peer, const Command& command);
  void on_store_notes(const std::vector<std::string>& texts);
  void add_to(std::vector<pollfd>& polled) const;
  std::chrono::milliseconds longest_wait(std::chrono::milliseconds at_most) const;
  void turn(Clock::time_point now);
  // Takes the gathered, unsent bundles, for a hub that becomes the lead.
  Bundles take_gathered() { return std::exchange(gathered_, Bundles{}); }
  // The reason why the lead cannot be reached; "" if no trouble is known.
  const std::string& trouble() const { return trouble_; }
  // Removes this hub's note from the output directory.
  void close();
  // Saves its own keys, if it has any. Call it after the job's directory was made again.
  void save_keys();

 private:
  struct LeadAddress {
    std::string address;
    std::string key;  // Z85; "": keys are made by hand, or missing
  };

  void look_in_directory(Clock::time_point now);
  void look_in_store(Clock::time_point now);
  void on_entry(const JobEntry& entry);
  void add_candidate(LeadAddress place);
  void try_next_candidate(Clock::time_point now);
  Result<std::optional<ClientKeys>> keys_for(const LeadAddress& place) const;
  void give_up_connection(std::string why, Clock::time_point next);
  void receive();
  void on_bytes(const std::string& bytes);
  std::chrono::milliseconds gather_for() const;
  void flush(Clock::time_point now);
  HubNote note() const;

  const Introduction introduction_;
  const fs::path key_file_;
  const std::shared_ptr<Mailbox> mailbox_;
  LocalPeers& peers_;
  std::optional<HubKeys> generated_keys_;  // unset: keys made by hand, no keys, or none could be made
  DiskThread disk_{"gradmon-find"};
  std::vector<LeadAddress> candidates_;  // possible addresses of the lead, the newest first
  std::size_t next_candidate_ = 0;
  std::unique_ptr<Bus> bus_;  // null: not connected
  std::string endpoint_;      // of the lead
  std::string trouble_ = "the lead hub is not found yet";
  // Limits the lines of trouble_ until the lead answers: dead candidates are tried in turn.
  LogLimiter warning_limiter_;
  bool reached_ = false;  // the lead has answered on this connection
  bool looking_ = false;
  Clock::time_point next_look_;
  Clock::time_point next_ask_;
  Clock::time_point next_try_;
  Clock::time_point lost_since_;  // start of the current search for the lead
  // The sending time of the oldest unanswered frame; unset: none is unanswered.
  std::optional<Clock::time_point> unanswered_since_;
  Bundles gathered_;
  TokenBucket alert_reports_;     // bounds the reports passed on
  TokenBucket replica_messages_;  // the same for ReplicaDigests and ReplicaValues
  Clock::time_point gathered_since_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false: drop late results of disk_
  std::map<std::string, std::string> pending_commands_;               // request id to client
};

}  // namespace gradmon
