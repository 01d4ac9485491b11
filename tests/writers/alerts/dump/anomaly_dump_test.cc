// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/dump/anomaly_dump.h"

#include <nlohmann/json.hpp>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

AlertEvent event_of(std::int64_t step) {
  AlertEvent event;
  event.rule = "AnomalyNan";
  event.step = Step{step};
  event.tag_name = "0:a/rank0/actv";
  event.op = "norm";
  return event;
}

std::size_t events_in(const std::filesystem::path& file) {
  return nlohmann::json::parse(read_text(file)).size();
}

}  // namespace

TEST_CASE("events wait while the disk is full and are written when it has room again") {
  const TemporaryDirectory scratch;
  bool full = true;
  const auto dump = std::make_shared<AnomalyDump>([&]() -> tl::expected<std::filesystem::path, std::string> {
    if (full) return tl::unexpected(std::string("no space left"));
    return scratch.path();
  });
  auto file = dump->add({event_of(1)});
  REQUIRE(file);
  CHECK(file->write().error() == "no space left");
  CHECK_FALSE(dump->add({event_of(2), event_of(3)}));  // the first write is tried again
  CHECK_FALSE(file->write());
  full = false;
  CHECK(file->write());
  CHECK(events_in(scratch / "anomaly.json") == 3);
  file.reset();
  file = dump->add({event_of(4)});
  REQUIRE(file);
  CHECK(file->write());
  CHECK(events_in(scratch / "anomaly.json") == 4);
  CHECK(dump->given_up() == 0);
}

TEST_CASE("a write that was given up is asked for again with the next event") {
  const TemporaryDirectory scratch;
  const auto dump = std::make_shared<AnomalyDump>(
      [&]() -> tl::expected<std::filesystem::path, std::string> { return scratch.path(); });
  CHECK(dump->add({event_of(1)}));
  const auto file = dump->add({event_of(2)});
  REQUIRE(file);
  CHECK(file->write());
  CHECK(events_in(scratch / "anomaly.json") == 2);
}

TEST_CASE("a bounded number of events waits, and a full file is counted") {
  const TemporaryDirectory scratch;
  const auto dump = std::make_shared<AnomalyDump>(
      [&]() -> tl::expected<std::filesystem::path, std::string> { return scratch.path(); },
      AnomalyFileLimits{3, 1 << 20});
  const auto file = dump->add({event_of(1), event_of(2)});
  REQUIRE(file);
  CHECK_FALSE(dump->add({event_of(3), event_of(4), event_of(5)}));
  CHECK(dump->given_up() == 2);
  CHECK(file->write());
  CHECK_FALSE(dump->add({event_of(6)}));
  CHECK(file->write());
  CHECK(dump->given_up() == 3);
  CHECK(events_in(scratch / "anomaly.json") == 3);
}
