// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/host/mailbox.h"
#include "control/hub/keys/hub_keys.h"
#include "control/hub/rendezvous/hub_note.h"
#include "control/hub/rendezvous/job_entry.h"
#include "control/hub/service/disk_thread.h"
#include "control/hub/transport/bus.h"
#include "control/wire/messages.h"

namespace gradmon {

// What a hub that is not the lead does: finds the lead hub of its job, passes on
// what the ranks of its host say, gathered into one message a turn, and hands out
// what the lead says to them. The lead is looked for, by GRADMON_ENDPOINT, its entry in
// the output directory and training's store, as long as it does not answer. The hub's thread.
class Relay {
 public:
  using Clock = std::chrono::steady_clock;

  struct Host {
    std::shared_ptr<Mailbox> mailbox;
    std::function<void(const Bundle&)> deliver;                              // to ranks of this host
    std::function<void(const std::string& peer, std::string frame)> answer;  // to a client of this host
    std::filesystem::path key_file;
    std::function<void(StoreNotes)> ask_store;  // a rank of this host that can, if there is one
    std::function<std::size_t()> ranks;         // of this host, connected
  };

  // `said`: the introduction of any rank of this host.
  Relay(Introduction said, Host host);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Is gathered, and goes out when all ranks of this host have spoken, or some
  // milliseconds later.
  void pass_on(Bundle bundle);
  void on_command(const std::string& peer, const Command& command);
  void on_store_notes(const std::vector<std::string>& texts);
  void add_to(std::vector<pollfd>& polled) const;
  std::chrono::milliseconds longest_wait(std::chrono::milliseconds at_most) const;
  void turn(Clock::time_point now);
  // What could not be passed on: this hub is the lead after all.
  Bundles take_gathered() { return std::exchange(gathered_, Bundles{}); }
  // Why the lead cannot be reached; "" where it can, as far as is known.
  const std::string& trouble() const { return trouble_; }
  // Takes back what it has left for others.
  void close();
  // The job's directory was made anew.
  void keep_keys();

 private:
  struct Place {
    std::string address;
    std::string key;  // Z85; "": keys are made by hand, or there are none
  };

  void look_in_directory(Clock::time_point now);
  void look_in_store(Clock::time_point now);
  void on_entry(const JobEntry& entry);
  void consider(Place place);
  void try_next_place(Clock::time_point now);
  tl::expected<std::optional<ClientKeys>, std::string> keys_for(const Place& place) const;
  void give_up_connection(std::string why, Clock::time_point next);
  void receive();
  void on_bytes(const std::string& bytes);
  std::chrono::milliseconds gather_for() const;
  void flush(Clock::time_point now);
  HubNote note() const;

  const Introduction said_;
  const Host host_;
  std::optional<HubKeys> own_;  // none: keys made by hand, or none can be made
  DiskThread disk_{"gradmon-find"};
  std::vector<Place> places_;  // where the lead may be, the newest first
  std::size_t next_place_ = 0;
  std::unique_ptr<Bus> bus_;  // null: not connected
  std::string endpoint_;      // of the lead
  std::string trouble_ = "the lead hub is not found yet";
  bool reached_ = false;      // it has answered on this connection
  bool looking_ = false;
  Clock::time_point next_look_;
  Clock::time_point next_ask_;
  Clock::time_point next_try_;
  Clock::time_point lost_since_;               // when the lead was last looked for anew
  std::optional<Clock::time_point> unanswered_since_;  // since when what was sent has no answer
  Bundles gathered_;
  Clock::time_point gathered_since_;
  const std::shared_ptr<bool> lives_ = std::make_shared<bool>(true);  // for answers that come too late
  std::map<std::string, std::string> asking_;  // request id to client
};

}  // namespace gradmon
