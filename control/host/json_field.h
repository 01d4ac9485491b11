// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

namespace gradmon {

// Reads a string or an integer from untrusted JSON; returns T{} if the key is missing or has another
// type.
template <class T>
T field(const nlohmann::json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end()) return {};
  if constexpr (std::is_same_v<T, std::string>) {
    return at->is_string() ? at->get<T>() : T{};
  } else {
    return at->is_number_integer() ? at->get<T>() : T{};
  }
}

}  // namespace gradmon
