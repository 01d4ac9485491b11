// SPDX-License-Identifier: Apache-2.0
// Keys as text: Z85 (ZeroMQ's RFC 32), 40 characters for 32 bytes. The alphabet contains "#", so a key file
// cannot have comments. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace gradmon {

using KeyBytes = std::array<unsigned char, 32>;
inline constexpr std::size_t kKeyText = 40;

// The text is as secret as the key. It has capacity for a line feed, so that adding one makes no copy.
std::string to_z85(const KeyBytes& key);

// Decodes `text`, of kKeyText characters, into `key`. Returns nullopt on success, else the index of the wrong
// character: the first that is not Z85, or the first of five characters whose value exceeds 32 bits.
std::optional<std::size_t> from_z85(std::string_view text, KeyBytes& key);

}  // namespace gradmon
