// SPDX-License-Identifier: Apache-2.0
// Finds the jobs that answer, and asks one. Lists are for programs with one thread: they read disks in a
// child process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/agree/journal.h"
#include "control/aliases.h"
#include "control/host/job_directory.h"
#include "control/hub/transport/curve_keys.h"
#include "control/hub/transport/rendezvous.h"
#include "control/wire/command.h"

namespace gradmon {

// Explains a denied path. A check for existence alone takes a denied path for a missing one. One thread at a
// time, because it calls getpwuid().
enum class Access : std::uint8_t { read, connect };  // read: includes searching a directory

// "" if this process has access, or if the path does not exist. Else a sentence: the path, the directory
// or file that denies access, its owner and mode, and the remedy.
std::string access_denial(const fs::path& path, Access access);

// The client of a job's control endpoint. One thread.
class CommandClient {
 public:
  // Does not wait for the job. `endpoint` is "ipc://PATH" or "tcp://HOST:PORT"; `keys` are for TCP. Throws
  // std::runtime_error for a malformed TCP endpoint, and for one on another host without keys.
  explicit CommandClient(const std::string& endpoint, std::optional<ClientKeys> keys = {});
  ~CommandClient();
  CommandClient(const CommandClient&) = delete;
  CommandClient& operator=(const CommandClient&) = delete;

  // Sends the command and waits for the reply; repeats the command, with the same request id, each second
  // until the reply comes. The error, a line for people: no reply in time, or the command is too long. The
  // outcome is not_allowed if the job refuses the key, or this user may not connect to the socket.
  Result<CommandReply> ask(const Command& command, std::chrono::milliseconds timeout);

  struct Connection;

 private:
  // Constant after construction.
  const std::string endpoint_;
  std::unique_ptr<Connection> connection_;
};

// The status replies of this user's hubs on this host, one for each job.
struct HubReplies {
  struct Answer {
    std::string endpoint;
    Status status;
  };
  std::vector<Answer> answers;
  // Sentences: hubs that accept a connection but do not reply, or refuse the status with a reason.
  std::vector<std::string> unresponsive;
  std::vector<JobDirectory> asked = {};
};

// Asks the hubs of these directories in parallel. Waits 3 s for replies, but only 1 s once a `wanted` job is
// found. Until then a restarting hub, with or without its socket, has 1 s to come back.
HubReplies query_hubs(std::vector<JobDirectory> directories,
                      const std::function<bool(const Status&)>& wanted);
// Asks all hubs of this user on this host: the hubs of the job_bases(), and hubs that run elsewhere.
HubReplies query_all_hubs(const std::function<bool(const Status&)>& wanted);

// The directories of the gradmon-hub processes of this user, in any environment, that pass
// JobDirectory::check(). For programs with one thread: reads /proc in a child process, for at most one
// second.
std::vector<JobDirectory> directories_of_hub_processes();

struct LiveJobs {
  std::vector<JobEntry> jobs;
  // Sentences: hubs and disks that do not answer. Their jobs are missing from `jobs`.
  std::vector<std::string> unanswered;
  // Sentences: directories that this user may not read (command_client.h); likewise.
  std::vector<std::string> denied = {};
  std::set<std::string> ended =
      {};  // endpoints of `jobs` whose ranks have all gone and whose hub will end soon
};

// Returns true for a job with that output directory, compared as text. For query_all_hubs().
std::function<bool(const Status&)> writes_into(const fs::path& output_dir);

// The jobs with that output directory. On this host: jobs whose hub answers over its socket and names this
// directory. If no hub of the job_bases() does, also asks the hubs that run elsewhere, and the hubs that
// entries in the directory name. Ignores an entry of another user, or one whose directory fails
// JobDirectory::check(). On other hosts: jobs listed in the directory that listen on TCP. Reads the directory
// only if no job of this host has this path, and for at most one second.
LiveJobs live_jobs(const fs::path& output_dir);
// The same, with the replies of this host's hubs at hand.
LiveJobs live_jobs(const fs::path& output_dir, HubReplies replies);

// All jobs whose hubs on this host have replied. As in live_jobs(), omits a job without ranks, whose hub is
// about to end, if another job exists: the job may have been restarted.
LiveJobs jobs_of_this_host(const HubReplies& replies);

// True if a hub listens at "ipc://PATH"; none for any other endpoint.
std::optional<bool> hub_is_listening(const std::string& endpoint);

}  // namespace gradmon
