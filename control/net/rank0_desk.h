// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "control/agree/coordinator.h"
#include "control/net/agent_options.h"
#include "control/net/command.h"
#include "control/net/config_desk.h"
#include "control/net/plan_source.h"
#include "control/net/strangers.h"

namespace gradmon {

// What rank 0 does besides being a member: the coordinator, with the config
// file, the commands and the history around it. Agent thread only.
class Rank0Desk {
 public:
  // How it reaches the others.
  struct Door {
    DiskThread& disk;
    JobHomes& homes;
    std::shared_ptr<Mailbox> mailbox;
    std::function<void(const Letter&)> send;  // to a member, this process's own included
    std::function<void(const std::string& peer, const Command&, const CommandReply&)> reply;
    std::function<Status()> own_status;          // of this rank alone
    std::function<std::string()> text_in_force;  // the config this rank runs; "" if none
  };

  Rank0Desk(const AgentOptions& options, JobIdentity job, std::string process_id, Door door);

  // Dynamic mode: watches the config file; the epoch begins when it has been read.
  void open();
  void on_letter(const Letter& letter);
  void on_command(const std::string& peer, const Command& command);
  void tick(Ticks elapsed);
  // Of the whole job, as of now.
  Status status() const;

  bool may_go() const { return coordinator_.may_go(); }
  bool busy() const { return coordinator_.busy() || !running_.empty(); }
  void close();

 private:
  void perform(CoordinatorActions actions);
  void on_content(ConfigDesk::Content content);
  void adopt(const FileContent& content, PlanSource source);
  void write_back(const WriteBack& due);
  void change(const std::string& peer, const Command& command);
  void changed(const std::string& peer, const Command& command, ConfigDesk::Edited edited);
  void change_without_file(const std::string& peer, const Command& command, const std::string& why);
  void propose(const std::string& peer, const Command& command, PlanSource source,
               std::optional<FileIdentity> file, std::string note);
  void answer(const std::string& peer, const Command& command, CommandReply reply);
  std::vector<HistoryEntry> newest_history() const;
  CommandReply verdict_on(const std::string& request_id) const;
  CommandReply config_in_force() const;
  void rehearse(const std::string& peer, const Command& command);
  void list_targets(const std::string& peer, const Command& command);
  void ask_ranks(const std::string& peer, const Command& command, CommandReply reply, PlanPtr plan);
  void rehearsed(ProbeResult result);
  void note_error(std::string text);
  void note_warnings(std::vector<std::string> warnings);
  void save_history();

  // Constant after construction.
  const AgentOptions options_;
  const JobIdentity job_;
  const Door door_;

  Coordinator coordinator_;
  Strangers strangers_;
  Ticks clock_{};
  ConfigDesk config_;
  bool begun_ = false;
  std::string adopted_text_;  // the last valid config
  std::string adopted_sha256_;
  std::string broken_file_;  // what is wrong with a newer one, "" if nothing
  bool write_back_allowed_ = true;
  std::optional<Config> first_config_;  // to tell what a later one cannot change
  std::optional<LastError> last_error_;
  std::vector<std::string> warnings_;
  std::set<std::string> running_;                 // request ids whose edit is on its way
  std::map<std::string, CommandReply> answered_;  // by request id
  // Questions for which the ranks are being asked, by request id: whom to answer, with what.
  struct Rehearsal {
    std::string peer;
    Command command;
    CommandReply reply;
  };
  std::map<std::string, Rehearsal> rehearsals_;
  std::deque<std::string> answered_order_;
};

}  // namespace gradmon
