// SPDX-License-Identifier: Apache-2.0
// Keys as text: Z85 (ZeroMQ's RFC 32), 40 characters for 32 bytes. The alphabet
// holds "#", so that a file of keys cannot have comments. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace gradmon {

using KeyBytes = std::array<unsigned char, 32>;
inline constexpr std::size_t kKeyText = 40;

// What it returns is as secret as the key is; it has room for a line feed.
std::string to_z85(const KeyBytes& key);

// `text` holds kKeyText characters. The place of the first that is wrong (no
// character of Z85, or the first of five that make too large a number); none
// where all is well and `key` is filled in.
std::optional<std::size_t> from_z85(std::string_view text, KeyBytes& key);

}  // namespace gradmon
