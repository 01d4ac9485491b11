// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace gradmon {

// The config text for a capture: in `config_text`, each member of its object at /on_alert/collect replaces
// the top-level key of the same name; all other keys stay. `config_text` must be a valid config with such an
// object. The error, for people: the result would exceed the bounds of json_locate.h. Pure.
[[nodiscard]] tl::expected<std::string, std::string> capture_config(std::string_view config_text);

}  // namespace gradmon
