// SPDX-License-Identifier: Apache-2.0
// History and alerts while the job's directory in the output directory cannot be written.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>

#include "tests/control/hub/served_job.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// A file in the place of the epoch's directory: no history and no alert can be written.
struct BlockedEpoch {
  ServedJob job{kOff};
  const fs::path epoch = job.output / ".gradmon" / "epoch";

  BlockedEpoch() {
    fs::create_directories(epoch.parent_path());
    write_text(epoch, "in the way");
  }
  // True if everything that was due has been tried.
  bool has_tried_to_save() {
    for (int i = 0; i < 5; ++i) {
      job.turn();
      if (!job.run_disk.drain(std::chrono::seconds(20))) return false;
    }
    return true;
  }
  bool is_written(const std::string& file, const std::string& text) {
    return job.until([&] { return read_text(epoch / file).find(text) != std::string::npos; });
  }
};

TEST_CASE("history that could not be written is written once it can be") {
  BlockedEpoch blocked;
  blocked.job.ask(CommandVerb::on, "one");
  blocked.job.settled("one");
  REQUIRE(blocked.has_tried_to_save());
  fs::remove(blocked.epoch);
  CHECK(blocked.is_written("history.jsonl", "\"one\""));
}

TEST_CASE("alerts that could not be written are written once they can be, in their order") {
  BlockedEpoch blocked;
  REQUIRE(blocked.job.until([&] { return blocked.job.status().ranks[0].step > 5; }));
  for (const char* rule : {"first", "second"}) {
    AlertReport report;
    report.alerts.resize(1);
    report.alerts[0].rule = rule;
    blocked.job.ranks[0]->raise(report);
    REQUIRE(blocked.has_tried_to_save());
  }
  fs::remove(blocked.epoch);
  REQUIRE(blocked.is_written("alerts.jsonl", "second"));
  const std::string written = read_text(blocked.epoch / "alerts.jsonl");
  CHECK(written.find("first") < written.find("second"));
  CHECK(std::count(written.begin(), written.end(), '\n') == 2);
}

TEST_CASE("of more alerts than are kept until they can be written the newest are written") {
  BlockedEpoch blocked;
  REQUIRE(blocked.job.until([&] { return blocked.job.status().ranks[0].step > 5; }));
  AlertReport report;
  report.alerts.resize(kMostAlertsInAReport);
  for (std::size_t i = 0; i < AlertHistory::kMostKept / kMostAlertsInAReport; ++i)
    blocked.job.ranks[0]->raise(report);
  report.alerts.resize(1);
  report.alerts[0].rule = "newest";
  blocked.job.ranks[0]->raise(report);
  REQUIRE(blocked.has_tried_to_save());
  fs::remove(blocked.epoch);
  CHECK(blocked.is_written("alerts.jsonl", "newest"));
}

}  // namespace
}  // namespace gradmon
