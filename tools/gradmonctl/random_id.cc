// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/random_id.h"

#include <sys/random.h>

#include <array>
#include <cstdlib>

namespace gradmon {

std::string random_id() {
  // getrandom() gives up to 256 bytes whole, once the kernel's pool is ready.
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  std::string digits;
  for (const unsigned char byte : bytes) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

}  // namespace gradmon
