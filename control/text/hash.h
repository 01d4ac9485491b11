// SPDX-License-Identifier: Apache-2.0
// Hashes whose values other programs may compute: they choose blocks of samples, and compare ranks.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradmon {

// FNV-1a, 64 bits.
constexpr std::uint64_t fnv_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// The finalizer of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014).
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27U) * 0x94d049bb133111eb;
  return x ^ x >> 31U;
}

}  // namespace gradmon
