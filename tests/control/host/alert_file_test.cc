// SPDX-License-Identifier: Apache-2.0
#include "control/host/alert_file.h"

#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "control/alerts/alert_json.h"
#include "control/debian_version.h"
#include "tests/control/host/resource_limit.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

AlertHistory::Kept alert_of(std::uint64_t number) {
  RankAlert alert;
  alert.number = number;
  alert.at = 1'700'000'000'000;
  alert.rank = Rank{3};
  alert.rule = "AnomalyNan";
  alert.step = 12;
  alert.micro_step = 1;
  alert.pp_stage = 2;
  alert.vpp_stage = 4;
  alert.call_id = 5;
  alert.tag_name = "0:fc1.weight/rank3/post_grad";
  alert.op = "norm";
  alert.value = std::numeric_limits<double>::infinity();
  alert.history_mean = 0.1;
  alert.message = "one\ntwo \x7f \xc3\xa9";
  return {alert, "process"};
}

std::vector<std::uint64_t> numbers_of(const std::vector<AlertHistory::Kept>& alerts) {
  std::vector<std::uint64_t> numbers;
  for (const auto& kept : alerts) numbers.push_back(kept.alert.number);
  return numbers;
}

TEST_CASE("alerts are read back as they were appended, with all their fields") {
  const TemporaryDirectory directory;
  const auto path = directory / "epoch" / "alerts.jsonl";
  AlertHistory::Kept none = alert_of(2);
  none.alert.value = std::nan("");
  none.alert.history_mean = -std::numeric_limits<double>::infinity();
  REQUIRE(append_alerts(path, {alert_of(1)}));
  REQUIRE(append_alerts(path, {none}));
  const auto read = read_alerts(path);
  REQUIRE(read.size() == 2);
  CHECK(json_of(read[0].alert) == json_of(alert_of(1).alert));
  CHECK(json_of(read[1].alert) == json_of(none.alert));
  CHECK(read[0].process_id == "process");
}

TEST_CASE("a line that a full disk has cut off loses itself alone") {
  const TemporaryDirectory directory;
  const auto path = directory / "alerts.jsonl";
  REQUIRE(append_alerts(path, {alert_of(1), alert_of(2)}));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 10);
  REQUIRE(append_alerts(path, {alert_of(3)}));
  CHECK(numbers_of(read_alerts(path)) == std::vector<std::uint64_t>{1, 3});
}

TEST_CASE("alerts that do not fit on the disk leave no part and can be appended again") {
  const TemporaryDirectory directory;
  const auto path = directory / "alerts.jsonl";
  REQUIRE(append_alerts(path, {alert_of(1)}));
  const auto bytes = std::filesystem::file_size(path);
  {
    const FileSizeLimit full(bytes + bytes / 2);
    CHECK_FALSE(append_alerts(path, {alert_of(2)}));
  }
  CHECK(std::filesystem::file_size(path) == bytes);
  REQUIRE(append_alerts(path, {alert_of(2)}));
  CHECK(numbers_of(read_alerts(path)) == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE(
    "the files stay within their bound and hold the newest alerts and the first of each rule and step") {
  const TemporaryDirectory directory;
  const auto path = directory / "alerts.jsonl";
  constexpr std::int64_t most = 4'000;
  for (std::uint64_t number = 1; number <= 100; ++number) {
    AlertHistory::Kept kept = alert_of(number);
    if (number == 50) kept.alert.rule = "AnomalySpike";
    REQUIRE(append_alerts(path, {kept}, most));
  }
  std::uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory.path())) bytes += file.file_size();
  CHECK(bytes <= 2 * most);
  const auto numbers = numbers_of(read_alerts(path));
  REQUIRE(numbers.size() > 8);
  CHECK(numbers.back() == 100);
  CHECK((numbers[0] == 1 && numbers[1] == 50));
  for (std::size_t i = 2; i < numbers.size(); ++i) CHECK(numbers[i] == 100 - numbers.size() + 1 + i);
  CHECK(read_text(path).find("{\"left_out\"") == 0);
}

TEST_CASE("what is no file of alerts gives none and is left alone") {
  const TemporaryDirectory directory;
  const auto path = directory / "alerts.jsonl";
  CHECK(read_alerts(path).empty());
  for (const std::string text : {"", "\n\n", "[]\n", "{}\n", "null\n", "{\"number\": \"x\", \"rank\": 1}\n",
                                 "{\"number\": 1, \"rank\": -1}\n", "{\"number\": 1e300, \"rank\": 1}\n",
                                 "\xff\xfe\n", "{\"rank\": 99999999999999999999}\n"}) {
    write_text(path, text);
    CHECK(read_alerts(path).empty());
  }
  const auto fifo = directory / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(read_alerts(fifo).empty());
  CHECK_FALSE(append_alerts(fifo, {alert_of(1)}));
  const auto link = directory / "link";
  std::filesystem::create_symlink(path, link);
  CHECK(read_alerts(link).empty());
  CHECK_FALSE(append_alerts(link, {alert_of(1)}));
}

TEST_CASE("the alerts of a run are those of its newest job, or of the job of a rank's directory") {
  const TemporaryDirectory out;
  CHECK(alerts_from_files(out.path()).error().find("no job has written in " + out.path().string()) == 0);
  const auto file_of = [&](const char* epoch) { return out / ".gradmon" / epoch / "alerts.jsonl"; };
  REQUIRE(append_alerts(file_of("old"), {alert_of(1)}));
  REQUIRE(append_alerts(file_of("new"), {alert_of(2)}));
  const auto now = std::filesystem::last_write_time(file_of("new"));
  std::filesystem::last_write_time(file_of("old"), now - std::chrono::hours(1));
  CHECK(numbers_of(alerts_from_files(out.path()).value()) == std::vector<std::uint64_t>{2});
  std::filesystem::create_directories(out / "rank");
  write_text(out / "rank" / "switches.jsonl", "{\"epoch\": \"old\"}\n{\"epo");
  CHECK(numbers_of(alerts_from_files(out / "rank").value()) == std::vector<std::uint64_t>{1});
  std::filesystem::create_directories(out / ".gradmon" / "quiet");
  write_text(out / ".gradmon" / "quiet" / "history.jsonl", "{}\n");
  std::filesystem::last_write_time(out / ".gradmon" / "quiet" / "history.jsonl", now + std::chrono::hours(1));
  CHECK(alerts_from_files(out.path()).value().empty());
}

}  // namespace
}  // namespace gradmon
