// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/hub/transport/curve_keys.h"
#include "control/wire/command.h"

namespace gradmon {

// Explains a denied path. A check for existence alone takes a denied path for a missing one. One thread at a
// time, because it calls getpwuid().
enum class Access : std::uint8_t { read, connect };  // read: includes searching a directory

// "" if this process has access, or if the path does not exist. Else a sentence: the path, the directory
// or file that denies access, its owner and mode, and the remedy.
std::string access_denial(const std::filesystem::path& path, Access access);

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
