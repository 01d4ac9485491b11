// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

namespace gradmon {

// Reads a string or a 64-bit integer from untrusted JSON. Returns T{} if the key is missing, has another
// type, or its value is outside the range of T.
template <class T>
T field(const nlohmann::json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end()) return {};
  if constexpr (std::is_same_v<T, std::string>) {
    return at->is_string() ? at->get<T>() : T{};
  } else {
    static_assert(std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint64_t>);
    if (!at->is_number_integer()) return {};
    constexpr auto max = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    const bool fits = at->is_number_unsigned() ? at->template get<std::uint64_t>() <= max
                                               : std::is_signed_v<T> || at->template get<std::int64_t>() >= 0;
    return fits ? at->template get<T>() : T{};
  }
}

}  // namespace gradmon
