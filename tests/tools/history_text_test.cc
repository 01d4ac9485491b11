// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/history_text.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/golden.h"
#include "tests/tools/sample_status.h"

namespace gradmon {
namespace {

TEST_CASE("history for people looks like its golden file") {
  const std::string text = history_text(sample_history());
  CHECK(golden_difference("history.txt", text) == "");
}

TEST_CASE("a history without changes says so") { CHECK(history_text({}) == "no change yet\n"); }

}  // namespace
}  // namespace gradmon
