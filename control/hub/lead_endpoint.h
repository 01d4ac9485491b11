// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/host/mailbox.h"
#include "control/hub/keys/hub_keys.h"
#include "control/hub/rendezvous/hub_note.h"
#include "control/hub/rendezvous/job_entry.h"
#include "control/hub/service/disk_thread.h"
#include "control/hub/transport/bus.h"
#include "control/wire/messages.h"

namespace gradmon {

// Where hubs and gradmonctl of other hosts reach the lead hub. It listens where
// GRADMON_ENDPOINT asks for it, where the launcher has started ranks on several hosts,
// and, where the launcher does not say, once the hub of another host has left its note.
// The keys are those of GRADMON_KEYS or else its own; hubs are let in by their notes. The
// hub's thread.
class LeadEndpoint {
 public:
  using Clock = std::chrono::steady_clock;

  struct Host {
    std::filesystem::path key_file;
    std::shared_ptr<Mailbox> mailbox;
    std::function<void(StoreNotes)> ask_store;  // rank 0, where it can
  };

  // `said`: rank 0's introduction.
  LeadEndpoint(Introduction said, Host host);
  LeadEndpoint(const LeadEndpoint&) = delete;
  LeadEndpoint& operator=(const LeadEndpoint&) = delete;

  // Null while it does not listen.
  Bus* bus() const { return bus_.get(); }
  // Why it does not listen, where it was to.
  const std::string& trouble() const { return trouble_; }
  // Whether ranks may be on other hosts, so that their hubs are to be looked for.
  bool discovers_hubs() const { return said_.world_size > 1 && said_.several_hosts != false; }
  // What others need to know of it.
  void describe(JobEntry& entry) const;
  // Leaves the entry in training's store, and asks for notes there: while ranks are
  // missing, in the first minute.
  void look_in_store(Clock::time_point now, const JobEntry& entry);
  void on_store_notes(const std::vector<std::string>& texts);
  void admit(const std::vector<HubNote>& notes);
  // The job's directory was made anew.
  void keep_keys();

 private:
  void open();
  void listen_as_before();
  void resolve_and_listen();
  void follow_allow_list();  // of GRADMON_KEYS
  void allow_only(tl::expected<AllowList, std::string> clients);
  void listen(const std::string& endpoint);
  tl::expected<std::optional<ServerKeys>, std::string> keys_for(const std::string& endpoint);
  void fail(std::string why);

  // Constant after construction.
  const Introduction said_;
  const Host host_;
  const Clock::time_point opened_;

  std::unique_ptr<DiskThread> resolver_;  // null until a name is to be resolved
  std::unique_ptr<DiskThread> key_disk_;  // null without GRADMON_KEYS
  std::unique_ptr<Bus> bus_;
  std::optional<HubKeys> own_;  // none: keys made by hand, none at all, or not needed yet
  std::string public_key_;      // Z85; "": no keys
  AllowList hubs_;              // of other hosts, by their notes
  std::string trouble_;
  bool opening_ = false;
  Clock::time_point next_ask_;
};

}  // namespace gradmon
