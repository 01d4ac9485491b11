// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/history_view.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

using nlohmann::json;

TEST_CASE("status as JSON matches its golden files") {
  const std::string collecting = status_json(sample_status(), JsonLayout::indented);
  CHECK(golden_difference("status_on.json", collecting) == "");
  const std::string troubled = status_json(troubled_status(), JsonLayout::indented);
  CHECK(golden_difference("status_troubled.json", troubled) == "");
}

TEST_CASE("history as JSON matches its golden file") {
  const std::string text = history_json(sample_history(), JsonLayout::indented);
  CHECK(golden_difference("history.json", text) == "");
}

TEST_CASE("status as JSON has every promised field") {
  const json status = json::parse(status_json(sample_status(), JsonLayout::one_line));
  for (const char* field : {"schema_version", "epoch", "mode", "state", "reason", "revision",
                            "effective_step", "pending", "collected", "collect_times", "step_interval",
                            "config_path", "config_sha256", "last_error", "ranks"}) {
    CAPTURE(field);
    CHECK(status.contains(field));
  }
  for (const char* field : {"rank", "host", "pid", "step", "revision", "applied_step", "state", "step_ms",
                            "last_seen_ms", "records", "dropped", "error"}) {
    CAPTURE(field);
    CHECK(status.at("ranks").at(0).contains(field));
  }
}

TEST_CASE("absent values are null in JSON") {
  const json status = json::parse(status_json(Status{}, JsonLayout::one_line));
  for (const char* field : {"effective_step", "pending", "last_error", "reason", "config_sha256"}) {
    CAPTURE(field);
    CHECK(status.at(field).is_null());
  }
  const json entry = json::parse(history_json({HistoryEntry{}}, JsonLayout::one_line)).at("revisions").at(0);
  for (const char* field : {"revision", "verdict", "effective_step", "finished_step"}) {
    CAPTURE(field);
    CHECK(entry.at(field).is_null());
  }
  CHECK(entry.at("applied") == json::object());
}

TEST_CASE("one-line JSON escapes line feeds and replaces bytes that are not UTF-8") {
  Status status = sample_status();
  status.ranks[0].host = "a\xff\nb";
  const std::string text = status_json(status, JsonLayout::one_line);
  CHECK(text.find('\n') == text.size() - 1);
  CHECK(json::parse(text).at("ranks").at(0).at("host") == "a\xEF\xBF\xBD\nb");
}

}  // namespace
}  // namespace gradmon
