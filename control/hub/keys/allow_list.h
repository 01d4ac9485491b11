// SPDX-License-Identifier: Apache-2.0
// clients.allow: the keys that may connect to a job, and their roles.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "control/hub/keys/z85.h"

namespace gradmon {

// read: may ask for status, history, verdicts and the config in force.
// control: may send every command, and may be a rank or a hub that speaks for ranks.
enum class Role : std::uint8_t { read, control };

const char* name_of(Role role);

struct Client {
  std::string name;
  Role role = Role::read;
};
using AllowList = std::map<KeyBytes, Client>;  // by public key

// Returns "" or the reason why the client name is invalid. The name is also a file name: letters, digits,
// "_", "-" and ".", at most 64 characters, not "." or "-" in front, and not "server".
std::string name_objection(std::string_view name);

// Reads one client per line, "NAME ROLE PUBLICKEY". Skips empty lines and lines that begin with "#". Requires
// at least one client; names and keys must be unique. The error begins with "FILE:LINE:COLUMN: " (columns in
// bytes, from 1), or with "FILE: " without a client, and never contains a key.
tl::expected<AllowList, std::string> parse_allow_list(std::string_view text, const std::string& file);

// The client's line in clients.allow, with its line feed.
std::string allow_list_line(const Client& client, const KeyBytes& public_key);

}  // namespace gradmon
