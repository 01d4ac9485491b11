// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "control/host/job_directory.h"
#include "control/host/mailbox.h"
#include "control/hub/lead_endpoint.h"
#include "control/hub/rendezvous/job_entry.h"
#include "control/hub/service/alert_publisher.h"
#include "control/hub/service/decision_file.h"
#include "control/hub/service/disk_thread.h"
#include "control/hub/service/job_service.h"
#include "control/hub/transport/dropped_messages.h"
#include "control/wire/messages.h"

namespace gradmon {

// The lead's part of a hub: the job's service with its decision log, the entry that locates the lead, and the
// endpoint for hubs and gradmonctl of other hosts. The hub's thread.
class Lead {
 public:
  using Clock = std::chrono::steady_clock;

  struct Host {
    JobDirectory directory;
    std::filesystem::path publisher;  // program of the AlertPublisher; empty: alerts are not published
    std::shared_ptr<Mailbox> mailbox;
    std::function<void(const Bundle&)> deliver;                              // to ranks of this host
    std::function<void(const std::string& peer, std::string frame)> answer;  // to a client of this host
    std::function<void(LogLevel, const std::string&)> tell;                  // writes into rank 0's log
    std::function<void(StoreNotes)> ask_store;  // sends to rank 0 if it can ask training's store
    std::function<bool()> has_rank0;
  };

  // `introduction`: rank 0's introduction, with its lead part.
  Lead(const Introduction& introduction, Host host);
  ~Lead();
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  // A message from a rank of this host.
  void on_envelope(Envelope envelope);
  // A command from a client of this host. The reply goes to Host::answer, with the same `peer`.
  void on_command(const std::string& peer, const Command& command);
  // Appends the descriptors to poll, without the mailbox's.
  void add_to(std::vector<pollfd>& polled) const;
  std::chrono::milliseconds longest_wait(std::chrono::milliseconds at_most) const {
    return endpoint_.bus() != nullptr ? endpoint_.bus()->longest_wait(at_most) : at_most;
  }
  // Handles the messages from other hosts, advances the time, and sends.
  void turn(Clock::time_point now);
  bool busy() const { return service_->busy(); }
  bool may_exit() const { return service_->may_exit(); }
  Status status() const;
  // Makes the decision log and the publisher's socket again if they were removed. Call it about once a
  // second.
  void restore_files(Clock::time_point now);
  // Leaves the decisions in another job directory, for the hub that continues the epoch there.
  void hand_over(const JobDirectory& directory) const;
  void on_store_notes(const std::vector<std::string>& texts) { endpoint_.on_store_notes(texts); }
  // Rank 0 has gone from this host and made another hub the lead.
  bool superseded() const { return superseded_; }
  // Call it after the job's directory was made again.
  void save_keys() { endpoint_.save_keys(); }
  void close();

 private:
  void send(Outgoing outgoing);
  void flush();
  void answer(const std::string& peer, const Command& command, CommandReply reply);
  void add_own_part(Status& status) const;
  void take_messages(Bus& bus);
  void on_bytes(const Bus::Incoming& incoming);
  void on_remote_bundle(const std::string& peer, Bundle bundle);
  void drop(const std::string& why);
  void discover_hubs(Clock::time_point now);
  void refresh_entry();
  JobEntry entry() const;

  const Host host_;
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
