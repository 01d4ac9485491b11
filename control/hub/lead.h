// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/aliases.h"
#include "control/host/job_directory.h"
#include "control/host/mailbox.h"
#include "control/hub/alert_publisher.h"
#include "control/hub/decision_file.h"
#include "control/hub/disk_thread.h"
#include "control/hub/job_service.h"
#include "control/hub/local_peers.h"
#include "control/hub/transport/bus.h"
#include "control/hub/transport/curve_keys.h"
#include "control/hub/transport/rendezvous.h"
#include "control/wire/messages.h"

namespace gradmon {

// Counts messages from the network that were dropped, and gives a line to log at most once a minute, so that
// foreign peers cannot fill the log. One thread.
class DroppedMessages {
 public:
  using Clock = std::chrono::steady_clock;

  // `why` must contain nothing of the message. Returns the line to log, if one is due.
  std::optional<std::string> count(const std::string& why, Clock::time_point now);
  // "" or a line for the status.
  std::string warning() const;

 private:
  std::uint64_t dropped_ = 0;
  std::string last_why_;
  std::optional<Clock::time_point> last_reported_;
};

// The TCP endpoint of the lead hub, for hubs and gradmonctl of other hosts. It listens if GRADMON_ENDPOINT
// asks for it, or if the launcher has started ranks on several hosts. Otherwise it listens as soon as another
// hub has left a note: the launcher may not know, and containers of one host have a hub each. Uses the keys
// of GRADMON_KEYS or else its own. Admits hubs by their notes. The hub's thread.
class LeadEndpoint {
 public:
  using Clock = std::chrono::steady_clock;

  // `introduction`: rank 0's introduction.
  LeadEndpoint(Introduction introduction, fs::path key_file, std::shared_ptr<Mailbox> mailbox,
               LocalPeers& peers);
  LeadEndpoint(const LeadEndpoint&) = delete;
  LeadEndpoint& operator=(const LeadEndpoint&) = delete;

  // Null while it does not listen.
  Bus* bus() const { return bus_.get(); }
  // The reason why it does not listen although it should, or "".
  const std::string& trouble() const { return trouble_; }
  // True if ranks may have another hub. The lead then looks for the notes of such hubs.
  bool discovers_hubs() const { return introduction_.world_size > 1; }
  // Sets address, key and trouble of the entry.
  void describe(JobEntry& entry) const;
  // Leaves the entry in training's store, and reads the notes there. Call it while ranks are missing. Does
  // nothing after the first minute.
  void look_in_store(Clock::time_point now, const JobEntry& entry);
  void on_store_notes(const std::vector<std::string>& texts);
  void admit(std::vector<HubNote> notes);
  // Retries a failed listen, at most every 2 s. Call it once a turn.
  void retry() {
    if (!trouble_.empty()) open();
  }
  // Saves its own keys, if it has any. Call it after the job's directory was made again.
  void save_keys();

 private:
  void open();
  Result<void> listen_as_before();
  void resolve_and_listen();
  void follow_allow_list();  // with GRADMON_KEYS only
  void allow_only(Result<AllowList> clients);
  Result<void> listen(const std::string& endpoint);
  Result<std::optional<ServerKeys>> keys_for(const std::string& endpoint);
  void fail(std::string why);

  // Constant after construction.
  const Introduction introduction_;
  const fs::path key_file_;
  const std::shared_ptr<Mailbox> mailbox_;
  LocalPeers& peers_;
  const Clock::time_point opened_;

  std::unique_ptr<DiskThread> resolver_;  // null until a name must be resolved
  std::unique_ptr<DiskThread> key_disk_;  // null without GRADMON_KEYS
  std::unique_ptr<Bus> bus_;
  std::optional<HubKeys> generated_keys_;  // unset: keys made by hand, no keys, or not needed yet
  std::string public_key_;                 // Z85; "": no keys
  AllowList hubs_;                         // hubs of other hosts, from their notes
  std::string trouble_;
  bool resolving_ = false;
  Clock::time_point next_try_;  // to listen
  Clock::time_point next_ask_;
};

// The lead's part of a hub: the job's service with its decision log, the entry that locates the lead, and the
// endpoint for hubs and gradmonctl of other hosts. The hub's thread.
class Lead final : private JobChannels {
 public:
  using Clock = std::chrono::steady_clock;

  struct Settings {
    JobDirectory directory;
    fs::path publisher;  // program of the AlertPublisher; empty: alerts are not published
    std::shared_ptr<Mailbox> mailbox;
  };

  // `introduction`: rank 0's introduction, with its lead part. `peers` must outlive the lead.
  Lead(const Introduction& introduction, Settings settings, LocalPeers& peers);
  ~Lead();
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  // A message from a rank of this host.
  void on_envelope(Envelope envelope);
  // For a command from a client of this host: its reply goes to LocalPeers::answer, with the same `peer`.
  JobService& service() { return *service_; }
  // Appends the descriptors to poll, without the mailbox's.
  void add_to(std::vector<pollfd>& polled) const;
  std::chrono::milliseconds longest_wait(std::chrono::milliseconds at_most) const {
    return endpoint_.bus() != nullptr ? endpoint_.bus()->longest_wait(at_most) : at_most;
  }
  // Handles the messages from other hosts, advances the time, and sends.
  void turn(Clock::time_point now);
  LeadEndpoint& endpoint() { return endpoint_; }
  Status status() const;
  // Makes the decision log and the publisher's socket again if they were removed. Call it about once a
  // second.
  void restore_files(Clock::time_point now);
  // Leaves the decisions in another job directory, for the hub that continues the epoch there.
  void hand_over(const JobDirectory& directory) const;
  // Rank 0 has gone from this host and made another hub the lead.
  bool superseded() const { return superseded_; }
  void close();

 private:
  void send(Outgoing outgoing) override;
  void reply(const std::string& peer, const std::string& request_id, CommandReply reply) override;
  void tell(LogLevel level, const std::string& text) override { peers_.tell_rank0(level, text); }
  void publish(const std::vector<Alert>& alerts) override;
  void flush();
  void add_own_part(Status& status) const;
  void take_messages(Bus& bus);
  void on_bytes(const Bus::Incoming& incoming);
  void on_remote_bundle(const std::string& peer, Bundle bundle);
  void drop(const std::string& why);
  void discover_hubs(Clock::time_point now);
  void refresh_entry();
  JobEntry entry() const;

  const Settings settings_;
  LocalPeers& peers_;
  std::unique_ptr<DecisionLog> log_;
  DecisionFile* decisions_ = nullptr;  // log_ if it is a file, else null
  DiskThread config_disk_{"gradmon-config"};
  DiskThread run_disk_{"gradmon-run"};
  AlertPublisher publisher_;
  std::unique_ptr<JobService> service_;
  LeadEndpoint endpoint_;
  std::set<int> heard_;  // ranks, of all hosts
  bool superseded_ = false;
  bool refreshing_entry_ = false;
  bool entry_kept_ = false;
  const std::shared_ptr<std::set<std::string>> notes_seen_;  // used by the thread of run_disk_ only
  std::string log_trouble_;
  // Hubs of other hosts: their peers by process id, and by rank and incarnation.
  std::map<std::string, std::string> hello_peers_;
  std::map<std::pair<int, std::uint64_t>, std::string> rank_peers_;
  std::map<std::string, Bundles> hub_recipients_;  // to send at the end of the turn, by peer
  DroppedMessages dropped_;
  const Clock::time_point begun_;
  Clock::time_point last_turn_;
  Clock::time_point last_entry_;
};

}  // namespace gradmon
