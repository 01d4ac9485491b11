// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "control/agree/register.h"
#include "control/net/discovery.h"
#include "control/net/disk_thread.h"
#include "control/net/mailbox.h"
#include "control/net/shared_store.h"

namespace gradmon {

// What the ranks of a job may have in common: the output directory, and
// training's store. In both, rank 0 says where it is, and keeps the register
// (`Home`). Files are touched by the disk thread alone, the store by a thread of
// its own, so that neither waits for the other; the answers come back through
// the mailbox. Agent thread.
class JobHomes {
 public:
  using Clock = std::chrono::steady_clock;
  using Done = std::function<void(tl::expected<void, std::string>)>;
  using Held = std::function<void(tl::expected<Verdict, std::string>)>;
  using Found = std::function<void(const JobEntry&)>;
  using OpenStore = std::function<std::shared_ptr<SharedStore>()>;

  struct Job {
    std::filesystem::path output_dir;
    int world_size = 1;
    std::string process_id;
    OpenStore open_store;  // null: there is none
  };

  JobHomes(Job job, DiskThread& disk, std::shared_ptr<Mailbox> mailbox);

  // Rank 0: makes the register (where `create` says so; its nonce is the epoch) and
  // says where rank 0 is, or that it cannot be reached. `done` is called once the
  // directory has been tried, whether that worked or not.
  enum class Create { registers, nothing };
  void announce(JobEntry entry, Create create, std::function<void()> done);
  // Rank 0, every turn: the same in the store, each second until it has succeeded
  // or the register has its home.
  void keep_announced(Clock::time_point now);
  void withdraw_announcement();
  // The others, every turn until rank 0 has answered: looks for the newest entry of
  // this launch every 50 ms in the directory, every second once one is found or for
  // ten seconds none was. In the store, which training needs more than we do, where
  // the directory has shown none for 500 ms: every second, later every ten.
  void find_rank0(const std::string& launcher_id, Clock::time_point now, const Found& found);

  // Which epoch's register is meant from now on.
  void enter(const std::string& epoch);
  void prove(Home home, const std::string& nonce, Done done);
  void decide(Home home, const Verdict& verdict, Held held);
  // Where the register is: no more is asked of a store that does not keep it.
  void settle(Home home);

 private:
  struct InStore;
  struct Look {
    bool under_way = false;
    std::optional<Clock::time_point> begun;
  };

  bool has_store() const;
  void in_store(std::function<void(InStore&)> work);
  static bool due(Look& look, Clock::duration pace, Clock::time_point now);
  void announce_in_store(Done done);
  void look_into_directory(const std::string& launcher_id, const Found& found);
  void look_into_store(const std::string& launcher_id, const Found& found);

  // Constant after construction.
  const Job job_;
  DiskThread& disk_;
  const std::shared_ptr<Mailbox> mailbox_;

  std::string epoch_;                    // "" until it is known
  std::shared_ptr<Register> directory_;  // null until then
  std::optional<JobEntry> announced_;    // rank 0 only
  std::optional<Clock::time_point> search_begun_;
  bool found_ = false;
  bool found_in_directory_ = false;
  bool said_not_found_ = false;
  Look directory_look_;
  Look store_look_;
  Look announcement_;  // in the store
  bool announced_in_store_ = false;
  bool settled_ = false;
  bool store_is_needless_ = false;
  // The store thread's own; shared because that thread may outlive this object.
  std::shared_ptr<InStore> in_store_;
  std::unique_ptr<DiskThread> store_thread_;  // null: no store, or not yet needed
};

}  // namespace gradmon
