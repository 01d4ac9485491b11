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

// The TCP endpoint of the lead hub, for hubs and gradmonctl of other hosts. It listens if GRADMON_ENDPOINT
// asks for it, or if the launcher has started ranks on several hosts. Otherwise it listens as soon as another
// hub has left a note: the launcher may not know, and containers of one host have a hub each. Uses the keys
// of GRADMON_KEYS or else its own. Admits hubs by their notes. The hub's thread.
class LeadEndpoint {
 public:
  using Clock = std::chrono::steady_clock;

  struct Host {
    std::filesystem::path key_file;
    std::shared_ptr<Mailbox> mailbox;
    std::function<void(StoreNotes)> ask_store;  // sends to rank 0 if it can ask training's store
  };

  // `introduction`: rank 0's introduction.
  LeadEndpoint(Introduction introduction, Host host);
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
  tl::expected<void, std::string> listen_as_before();
  void resolve_and_listen();
  void follow_allow_list();  // with GRADMON_KEYS only
  void allow_only(tl::expected<AllowList, std::string> clients);
  tl::expected<void, std::string> listen(const std::string& endpoint);
  tl::expected<std::optional<ServerKeys>, std::string> keys_for(const std::string& endpoint);
  void fail(std::string why);

  // Constant after construction.
  const Introduction introduction_;
  const Host host_;
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

}  // namespace gradmon
