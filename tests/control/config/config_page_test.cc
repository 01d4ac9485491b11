// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_page.h"

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// Where it fails: run it with GRADMON_WRITE_GOLDEN=1, and read the difference.
TEST_CASE("CONFIG.md is what the option tables say") {
  CHECK(golden_difference("CONFIG.md", config_page()) == "");
}

}  // namespace
}  // namespace gradmon
