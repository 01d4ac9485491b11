// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/history_view.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

TEST_CASE("history as text matches its golden file") {
  const std::string text = full_text(history_listing(sample_history()));
  CHECK(golden_difference("history.txt", text) == "");
}

TEST_CASE("a refused edit is one line with all its errors") {
  HistoryEntry refused;
  refused.verdict = "refused";
  refused.cause = "file";
  refused.by = "a.json";
  refused.reason = "a.json:1:2: one\na.json:3:4: two";
  const std::string text = full_text(history_listing({refused}));
  CHECK(text.find("  a.json  a.json:1:2: one; a.json:3:4: two\n") != std::string::npos);
  CHECK(text.find("  refused  -         file") != std::string::npos);  // "-": neither on nor off.
  CHECK(history_json({refused}, JsonLayout::one_line).find("\"on\":null") != std::string::npos);
}

TEST_CASE("a history without changes says so") { CHECK(full_text(history_listing({})) == "no change yet\n"); }

}  // namespace
}  // namespace gradmon
