// SPDX-License-Identifier: Apache-2.0
// Between values and the bytes of wire.proto. Pure; any thread. Bytes from
// strangers go in here: whatever they are, the result is a value or an error.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <variant>

#include "control/agree/journal.h"
#include "control/agree/message.h"
#include "control/net/command.h"

namespace gradmon {

// A command's answer, with the id of the command it answers.
struct AddressedReply {
  std::string request_id;
  CommandReply reply;
};

using Frame = std::variant<Letter, Command, AddressedReply, Status>;

inline constexpr std::size_t kMostBytesUp = 64 * 1024;  // towards rank 0
// Towards ranks and gradmonctl: two configs of 1 MiB, and what is said of them.
inline constexpr std::size_t kMostBytesDown = 2 * 1024 * 1024 + 64 * 1024;

std::string encode(const Frame& frame);
tl::expected<Frame, std::string> decode_frame(std::string_view bytes);

// An entry of the register.
std::string encode(const Verdict& verdict);
tl::expected<Verdict, std::string> decode_verdict(std::string_view bytes);

}  // namespace gradmon
