// SPDX-License-Identifier: Apache-2.0
#include "control/host/process_identity.h"

#include <unistd.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("random bytes are two lower-case hex digits each and differ between calls") {
  CHECK(random_hex(0).empty());
  const std::string text = random_hex(16);
  CHECK(text.size() == 32);
  CHECK(text.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(text != random_hex(16));
}

TEST_CASE("a running process has a start time and an invalid pid has none") {
  CHECK(process_start_ticks(getpid()) > 0);
  CHECK(process_start_ticks(getpid()) == process_start_ticks(getpid()));
  CHECK(process_start_ticks(-1) == 0);
}

}  // namespace
}  // namespace gradmon
