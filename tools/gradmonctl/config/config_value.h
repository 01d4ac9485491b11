// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace gradmon {

// The JSON value of a key (or JSON pointer) of a valid config text: as it is
// written there, else the key's default, "null" where that is no value. The
// error, for people: no such key, with the nearest one.
tl::expected<std::string, std::string> config_value(std::string_view text, const std::string& key);

}  // namespace gradmon
