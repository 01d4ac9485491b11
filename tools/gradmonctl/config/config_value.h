// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace gradmon {

// The JSON value of a key (or JSON pointer) in a valid config text, exactly as written;
// if the text lacks the key, its default, or "null" if it has no default. The error, one
// readable line: the key is unknown; it suggests the nearest key.
tl::expected<std::string, std::string> config_value(std::string_view text, const std::string& key);

}  // namespace gradmon
