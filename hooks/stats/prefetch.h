// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace gradmon {

// Asks for memory that will be read soon. Does not wait, and any address is allowed.
inline void ask_for(const void* object, std::size_t bytes) {
  constexpr std::size_t line = 64;
  for (std::size_t at = 0; at < bytes; at += line) __builtin_prefetch(static_cast<const char*>(object) + at);
}

}  // namespace gradmon
