// SPDX-License-Identifier: Apache-2.0
#include "control/host/history_file.h"

#include <algorithm>
#include <fstream>

#include "control/debian_version.h"
#include "tests/control/host/resource_limit.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

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

TEST_CASE("the last line of an entry counts and the ranks' own switch notes are added") {
  TemporaryDirectory directory;
  std::filesystem::create_directories(directory / ".gradmon/e");
  std::filesystem::create_directories(directory / "Nov21_01-02-03-rank1-00000000");
  const auto file = directory / ".gradmon/e/history.jsonl";
  REQUIRE(append_history(file, {{0, entry(1)}, {1, entry(2)}}));
  HistoryEntry closed = entry(1);
  closed.verdict = "commit";
  closed.effective_step = 5;
  REQUIRE(append_history(file, {{0, closed}}));
  REQUIRE(append_switch(directory / "Nov21_01-02-03-rank1-00000000/switches.jsonl",
                        {"e", Rank{1}, Revision{1}, Step{5}, true, 0}));
  REQUIRE(append_switch(directory / "Nov21_01-02-03-rank1-00000000/switches.jsonl",
                        {"another", Rank{1}, Revision{2}, Step{9}, true, 0}));
  const auto history = history_from_files(directory.path());
  REQUIRE(history);
  REQUIRE(history->size() == 2);
  REQUIRE(history->at(0).verdict == "commit");
  REQUIRE(history->at(0).by == "a \"name\"\n");
  REQUIRE(history->at(0).applied == std::map<int, std::int64_t>{{0, 5}, {1, 5}});
  REQUIRE(history->at(1).applied == std::map<int, std::int64_t>{{0, 5}});
}

TEST_CASE("an entry of a restarted hub keeps the ranks that applied its revision before") {
  TemporaryDirectory directory;
  HistoryEntry again = entry(1);
  again.applied = {{1, 7}};
  REQUIRE(append_history(directory / ".gradmon/e/history.jsonl", {{3, entry(1)}, {1'000, again}}));
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == 1);
  CHECK(history->front().applied == std::map<int, std::int64_t>{{0, 5}, {1, 7}});
}

// Comparing each rank with every other rank would take minutes.
TEST_CASE("an entry with 300000 ranks is written and read without quadratic time") {
  TemporaryDirectory directory;
  HistoryEntry big = entry(1);
  for (int rank = 0; rank < 300'000; ++rank) big.applied[rank] = 5;
  REQUIRE(append_history(directory / ".gradmon/e/history.jsonl", {{0, big}}));
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == 1);
  CHECK(history->front().applied == big.applied);
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
  TemporaryDirectory directory;
  std::filesystem::create_directories(directory / ".gradmon/e");
  const auto file = directory / ".gradmon/e/history.jsonl";
  REQUIRE(append_history(file, {{0, entry(1)}}));
  std::ofstream(file, std::ios::app) << R"({"key": 1, "revi)";
  REQUIRE(history_from_files(directory.path())->size() == 1);
  REQUIRE(append_history(file, {{2, entry(3)}}));  // The next line is not lost with it.
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == 2);
  CHECK(history->at(1).revision == Revision{3});
}

TEST_CASE("an entry whose revision changes is no longer the entry of its earlier revision") {
  TemporaryDirectory directory;
  const auto file = directory / ".gradmon/e/history.jsonl";
  REQUIRE(append_history(file, {{0, entry(1)}}));
  REQUIRE(append_history(file, {{0, entry(2)}}));
  REQUIRE(append_history(file, {{1, entry(1)}}));
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == 2);
  CHECK(history->at(0).revision == Revision{2});
  CHECK(history->at(1).revision == Revision{1});
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

}  // namespace
}  // namespace gradmon
