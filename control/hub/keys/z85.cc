// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/z85.h"

#include <cstdint>

namespace gradmon {
namespace {

constexpr std::string_view kAlphabet =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
constexpr std::uint64_t kBase = 85;
constexpr std::size_t kBytes = 4;
constexpr std::size_t kCharacters = 5;

}  // namespace

std::string to_z85(const KeyBytes& key) {
  std::string text;
  text.reserve(kKeyText + 1);
  text.resize(kKeyText);
  for (std::size_t group = 0; group < key.size() / kBytes; ++group) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kBytes; ++i) value = value << 8U | key[group * kBytes + i];
    for (std::size_t i = kCharacters; i-- > 0; value /= kBase)
      text[group * kCharacters + i] = kAlphabet[value % kBase];
  }
  return text;
}

std::optional<std::size_t> from_z85(std::string_view text, KeyBytes& key) {
  for (std::size_t group = 0; group < key.size() / kBytes; ++group) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kCharacters; ++i) {
      const std::size_t place = group * kCharacters + i;
      const std::size_t digit = place < text.size() ? kAlphabet.find(text[place]) : kAlphabet.npos;
      if (digit == kAlphabet.npos) return place;
      value = value * kBase + digit;
    }
    if (value > UINT32_MAX) return group * kCharacters;
    for (std::size_t i = kBytes; i-- > 0; value >>= 8U)
      key[group * kBytes + i] = static_cast<unsigned char>(value & 0xFFU);
  }
  return {};
}

}  // namespace gradmon
