// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/hub/keys/curve_keys.h"
#include "control/wire/command.h"

namespace gradmon {

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
  tl::expected<CommandReply, std::string> ask(const Command& command, std::chrono::milliseconds timeout);

  struct Connection;

 private:
  // Constant after construction.
  const std::string endpoint_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace gradmon
