// SPDX-License-Identifier: Apache-2.0
// Checks that the shipped binaries are compiled and linked so that a bug in them is hard to exploit.
#include <array>
#include <cstdio>
#include <sstream>
#include <string>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

std::string readelf(const std::string& what, const std::string& file) {
  std::string text;
  FILE* pipe = popen(("LC_ALL=C readelf -W " + what + " '" + file + "' 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> part{};
  while (const std::size_t count = fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), count);
  CHECK(pclose(pipe) == 0);
  return text;
}

bool has(const std::string& text, const std::string& wanted) {
  return text.find(wanted) != std::string::npos;
}

}  // namespace

TEST_CASE("shipped binaries are bound at once and have read-only tables and stack and buffer checks") {
  std::istringstream shipped(GRADMON_SHIPPED);
  int files = 0;
  for (std::string file; std::getline(shipped, file, ':'); ++files) {
    CAPTURE(file);
    const std::string segments = readelf("--program-headers --dynamic", file);
    CHECK(has(segments, "GNU_RELRO"));
    CHECK((has(segments, "BIND_NOW") || has(segments, "Flags: NOW")));
    const std::string symbols = readelf("--dyn-syms", file);
    CHECK(has(symbols, "__stack_chk_fail"));
#if GRADMON_FORTIFIED
    CHECK(has(symbols, "_chk@"));
#endif
  }
  CHECK(files >= 2);
}

}  // namespace gradmon
