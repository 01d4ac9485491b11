// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_page.h"

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// If this fails: run it with GRADMON_WRITE_GOLDEN=1, and read the diff of CONFIG.md.
TEST_CASE("CONFIG.md matches the option tables") {
  CHECK(golden_difference("CONFIG.md", config_page()) == "");
}

}  // namespace
}  // namespace gradmon
