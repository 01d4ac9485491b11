// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "control/net/command.h"

namespace gradmon {

// The asking end of a job's control endpoint. One thread.
class CommandClient {
 public:
  // Connects, without waiting for an answer. `endpoint` is "ipc://PATH" or
  // "tcp://HOST:PORT". Throws std::runtime_error on a malformed one.
  explicit CommandClient(const std::string& endpoint);
  ~CommandClient();
  CommandClient(const CommandClient&) = delete;
  CommandClient& operator=(const CommandClient&) = delete;

  // Asks and waits for the answer; the question is repeated (same request id)
  // while there is none. The error is a line for people: no answer in time.
  tl::expected<CommandReply, std::string> ask(const Command& command, std::chrono::milliseconds timeout);

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;  // Constant after construction.
};

}  // namespace gradmon
