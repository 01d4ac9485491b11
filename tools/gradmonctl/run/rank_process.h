// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/gradmonctl/run/line_prefixer.h"
#include "tools/gradmonctl/run/pending_output.h"

namespace gradmon {

// Copies stdout or stderr of a rank, line by line, to the same stream of this process. Does not block.
class RankStream {
 public:
  RankStream(int from, int rank) : from_(from), lines_(rank) {}
  ~RankStream();
  RankStream(RankStream&& other) noexcept;
  RankStream& operator=(RankStream&&) = delete;

  int fd() const { return from_; }  // for poll(); -1 after the end of the stream
  // Copies at most 64 KiB; nothing while `to` is blocked. Returns false if it copied nothing.
  bool copy_available(PendingOutput& to);
  void end(PendingOutput& to);  // copies an unfinished line, then closes the pipe

 private:
  int from_;  // Owned; non-blocking.
  LinePrefixer lines_;
};

// One rank and the processes it has started: its own process group. gone(): all processes of the group have
// ended. One thread. The process that creates ranks must be a child subreaper, or gone() would be true too
// early.
class RankProcess {
 public:
  // Runs `command` with stdin from /dev/null, the signal mask `mask` and default SIGPIPE. If this process
  // dies first, the kernel kills the command, but not the processes that it started.
  static tl::expected<RankProcess, std::string> start(const std::vector<std::string>& command,
                                                      const std::vector<std::string>& environment, int rank,
                                                      const sigset_t& mask);

  // Reaps the ended processes of the group. Returns the wait status of the rank itself, once.
  std::optional<int> reap();
  bool gone() const { return gone_; }
  pid_t pid() const { return pid_; }
  void send(int signal) const;  // to the whole group; does nothing if it is gone

  RankStream out;
  RankStream err;

 private:
  RankProcess(pid_t pid, int out_fd, int err_fd, int rank)
      : out(out_fd, rank), err(err_fd, rank), pid_(pid) {}

  pid_t pid_;  // Constant after construction; also the group's id.
  bool gone_ = false;
};

}  // namespace gradmon
