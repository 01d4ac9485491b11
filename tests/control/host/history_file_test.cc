// SPDX-License-Identifier: Apache-2.0
#include "control/host/history_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "control/alerts/alert_report.h"
#include "control/host/json_field.h"
#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

HistoryEntry entry(std::uint64_t revision) {
  HistoryEntry made;
  made.revision = Revision{revision};
  made.cause = "file";
  made.by = "a \"name\"\n";
  made.applied = {{0, 5}};
  return made;
}

// An output directory with the history of the job of epoch "e".
struct Output {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory / ".gradmon/e/history.jsonl";

  void append(const std::map<Journal::Key, HistoryEntry>& entries) const {
    REQUIRE(append_history(file, entries));
  }
  std::vector<HistoryEntry> history() const { return history_from_files(directory.path()).value(); }
};

TEST_CASE("the last line of an entry counts and the ranks' own switch notes are added") {
  const Output output;
  const auto switches = output.directory / "Nov21_01-02-03-rank1-00000000" / "switches.jsonl";
  std::filesystem::create_directories(switches.parent_path());
  output.append({{0, entry(1)}, {1, entry(2)}});
  HistoryEntry closed = entry(1);
  closed.verdict = "commit";
  closed.effective_step = 5;
  output.append({{0, closed}});
  REQUIRE(append_switch(switches, {"e", Rank{1}, Revision{1}, Step{5}, true, 0}));
  REQUIRE(append_switch(switches, {"another", Rank{1}, Revision{2}, Step{9}, true, 0}));
  const auto history = output.history();
  REQUIRE(history.size() == 2);
  CHECK(history[0].verdict == "commit");
  CHECK(history[0].by == "a \"name\"\n");
  CHECK(history[0].applied == std::map<int, std::int64_t>{{0, 5}, {1, 5}});
  CHECK(history[1].applied == std::map<int, std::int64_t>{{0, 5}});
}

TEST_CASE("an entry of a restarted hub keeps the ranks that applied its revision before") {
  const Output output;
  HistoryEntry again = entry(1);
  again.applied = {{1, 7}};
  output.append({{3, entry(1)}, {1'000, again}});
  const auto history = output.history();
  REQUIRE(history.size() == 1);
  CHECK(history.front().applied == std::map<int, std::int64_t>{{0, 5}, {1, 7}});
}

// Comparing each rank with every other rank would take minutes.
TEST_CASE("an entry with 300000 ranks is written and read without quadratic time") {
  const Output output;
  HistoryEntry big = entry(1);
  for (int rank = 0; rank < 300'000; ++rank) big.applied[rank] = 5;
  output.append({{0, big}});
  const auto history = output.history();
  REQUIRE(history.size() == 1);
  CHECK(history.front().applied == big.applied);
}

TEST_CASE("a history beyond its bound loses its oldest entries and both of its files are read") {
  TemporaryDirectory directory;
  const auto file = directory / ".gradmon/e/history.jsonl";
  const auto append = [&](std::uint64_t revision) {
    REQUIRE(append_history(file, {{revision, entry(revision)}}, 1));  // a file for each entry
    return history_from_files(directory.path())->size();
  };
  CHECK(append(1) == 1);
  CHECK(append(2) == 2);
  CHECK(append(3) == 2);
  CHECK(read_text(file).find("{\"left_out\": \"the oldest lines, with the earlier history.jsonl.1\"}\n") ==
        0);
  const auto history = history_from_files(directory.path());
  CHECK(history->front().revision == Revision{2});
  CHECK(history->back().revision == Revision{3});
}

TEST_CASE("the switches of a rank stay within their bound, say that they do, and both files are read") {
  TemporaryDirectory directory;
  const auto run = directory / "Nov21_01-02-03-rank1-00000000";
  std::map<Journal::Key, HistoryEntry> entries;
  for (std::uint64_t i = 1; i <= 100; ++i) entries[i] = entry(i);
  REQUIRE(append_history(directory / ".gradmon/e/history.jsonl", entries));
  for (std::uint64_t i = 1; i <= 100; ++i)
    REQUIRE(append_switch(run / "switches.jsonl", {"e", Rank{1}, Revision{i}, Step{5}, true, 0}, 1'000));
  std::uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(run)) bytes += file.file_size();
  CHECK(bytes <= 2'100);
  CHECK(read_text(run / "switches.jsonl").find("{\"left_out\"") == 0);
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == 100);
  CHECK(history->front().applied.count(1) == 0);
  const auto noted = [](const HistoryEntry& one) { return one.applied.count(1) != 0; };
  CHECK(std::count_if(history->begin(), history->end(), noted) > 15);
  CHECK(noted(history->back()));
}

TEST_CASE("a line cut short by a kill is skipped") {
  const Output output;
  output.append({{0, entry(1)}});
  std::ofstream(output.file, std::ios::app) << R"({"key": 1, "revi)";
  REQUIRE(output.history().size() == 1);
  output.append({{2, entry(3)}});  // The next line is not lost with it.
  const auto history = output.history();
  REQUIRE(history.size() == 2);
  CHECK(history[1].revision == Revision{3});
}

TEST_CASE("an entry whose revision changes is no longer the entry of its earlier revision") {
  const Output output;
  output.append({{0, entry(1)}});
  output.append({{0, entry(2)}});
  output.append({{1, entry(1)}});
  const auto history = output.history();
  REQUIRE(history.size() == 2);
  CHECK((history[0].revision == Revision{2} && history[1].revision == Revision{1}));
}

// Comparing each line with all entries would take minutes.
TEST_CASE("a history of 30000 revisions is read without quadratic time") {
  constexpr std::uint64_t revisions = 30'000;
  TemporaryDirectory directory;
  std::map<Journal::Key, HistoryEntry> entries;
  for (std::uint64_t i = 0; i < revisions; ++i) entries[i] = entry(i + 1);
  REQUIRE(append_history(directory / ".gradmon/e/history.jsonl", entries));
  std::filesystem::create_directory(directory / "run");
  std::ofstream switches(directory / "run/switches.jsonl");
  for (std::uint64_t i = 1; i <= revisions; ++i)
    switches << R"({"epoch":"e","rank":1,"revision":)" << i << R"(,"step":7})" << '\n';
  switches.close();
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == revisions);
  CHECK(history->back().applied == std::map<int, std::int64_t>{{0, 5}, {1, 7}});
}

TEST_CASE("a partial write is an error that names the cause") {
  TemporaryDirectory directory;
  const auto file = directory / ".gradmon/e/history.jsonl";
  std::filesystem::create_directories(file.parent_path());
  const auto appended = [&] {
    const FileSizeLimit full(10);
    return append_history(file, {{0, entry(1)}});
  }();
  REQUIRE_FALSE(appended);
  CHECK(appended.error() == file.string() + ": File too large");
}

TEST_CASE("a directory without history is an error") {
  TemporaryDirectory directory;
  REQUIRE_FALSE(history_from_files(directory.path()));
}

AlertHistory::Kept alert_of(std::uint64_t number) {
  Alert alert;
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
  CHECK(to_json(read[0].alert) == to_json(alert_of(1).alert));
  CHECK(to_json(read[1].alert) == to_json(none.alert));
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

TEST_CASE("a field of the wanted type is read") {
  const auto json =
      nlohmann::json::parse(R"({"text": "a", "least": -9223372036854775808, "most": 9223372036854775807,)"
                            R"("all": 18446744073709551615})");
  CHECK(field<std::string>(json, "text") == "a");
  CHECK(field<std::int64_t>(json, "least") == std::numeric_limits<std::int64_t>::min());
  CHECK(field<std::int64_t>(json, "most") == std::numeric_limits<std::int64_t>::max());
  CHECK(field<std::uint64_t>(json, "most") == 9223372036854775807U);
  CHECK(field<std::uint64_t>(json, "all") == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("a field that is missing or of another type reads as the empty value") {
  const auto json = nlohmann::json::parse(R"({"text": "a", "number": 1, "real": 1.5, "yes": true})");
  CHECK(field<std::string>(json, "missing").empty());
  CHECK(field<std::string>(json, "number").empty());
  CHECK(field<std::int64_t>(json, "text") == 0);
  CHECK(field<std::int64_t>(json, "real") == 0);
  CHECK(field<std::uint64_t>(json, "yes") == 0);
}

TEST_CASE("an integer outside the range of its field reads as 0") {
  const auto json = nlohmann::json::parse(R"({"negative": -1, "over": 9223372036854775808})");
  CHECK(field<std::uint64_t>(json, "negative") == 0);
  CHECK(field<std::int64_t>(json, "over") == 0);
  CHECK(field<std::uint64_t>(nlohmann::json{{"made", -1}}, "made") == 0);
  CHECK(field<std::uint64_t>(nlohmann::json{{"made", 1}}, "made") == 1);
}

}  // namespace
}  // namespace gradmon
