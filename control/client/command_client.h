// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/wire/command.h"
#include "control/hub/keys/curve_keys.h"

namespace gradmon {

// The asking end of a job's control endpoint. One thread.
class CommandClient {
 public:
  // Connects, without waiting for an answer. `endpoint` is "ipc://PATH" or
  // "tcp://HOST:PORT", to which `keys` are used. Throws std::runtime_error on a
  // malformed one, or one of another host without keys.
  explicit CommandClient(const std::string& endpoint, std::optional<ClientKeys> keys = {});
  ~CommandClient();
  CommandClient(const CommandClient&) = delete;
  CommandClient& operator=(const CommandClient&) = delete;

  // Asks and waits for the answer; the question is repeated (same request id)
  // while there is none. The error is a line for people: no answer in time. A
  // job that refuses the key is an answer: not_allowed. So is a socket that this
  // user may not connect to.
  tl::expected<CommandReply, std::string> ask(const Command& command, std::chrono::milliseconds timeout);

  struct Connection;

 private:
  // Constant after construction.
  const std::string endpoint_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace gradmon
