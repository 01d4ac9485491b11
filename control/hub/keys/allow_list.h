// SPDX-License-Identifier: Apache-2.0
// clients.allow: whose keys may connect to a job, and what they may do there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "control/hub/keys/z85.h"

namespace gradmon {

// read: status, history, verdicts, the config in force, and the broadcast of the state.
// control: all commands besides; and only such a client can be a rank.
enum class Role : std::uint8_t { read, control };

const char* name_of(Role role);

struct Client {
  std::string name;
  Role role = Role::read;
};
using AllowList = std::map<KeyBytes, Client>;  // by public key

// "" or what is wrong with a client's name, which is a file's name too: letters,
// digits, "_", "-" and ".", 64 at most, no "." in front, and not "server".
std::string name_objection(std::string_view name);

// One client a line, "NAME ROLE PUBLICKEY"; empty lines, and lines that begin
// with "#". At least one client, no name or key twice. The error begins with
// "FILE:LINE:COLUMN: ", columns in bytes from 1, and never repeats a key.
tl::expected<AllowList, std::string> parse_allow_list(std::string_view text, const std::string& file);

// The line that parse_allow_list reads, with its line feed.
std::string allow_list_line(const Client& client, const KeyBytes& public_key);

}  // namespace gradmon
