// SPDX-License-Identifier: Apache-2.0
#include "control/host/history_file.h"

#include <signal.h>
#include <sys/resource.h>

#include <fstream>

#include "control/debian_version.h"
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

TEST_CASE("the last word on an entry holds and ranks add what they noted themselves") {
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

TEST_CASE("a hub that was started anew takes no rank away that had applied a revision") {
  TemporaryDirectory directory;
  HistoryEntry again = entry(1);
  again.applied = {{1, 7}};
  REQUIRE(append_history(directory / ".gradmon/e/history.jsonl", {{3, entry(1)}, {1'000, again}}));
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == 1);
  CHECK(history->front().applied == std::map<int, std::int64_t>{{0, 5}, {1, 7}});
}

// Comparing each rank with each other would take minutes.
TEST_CASE("an entry that very many ranks have applied is written and read in time") {
  TemporaryDirectory directory;
  HistoryEntry big = entry(1);
  for (int rank = 0; rank < 300'000; ++rank) big.applied[rank] = 5;
  REQUIRE(append_history(directory / ".gradmon/e/history.jsonl", {{0, big}}));
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == 1);
  CHECK(history->front().applied == big.applied);
}

TEST_CASE("a line cut short by a kill is skipped") {
  TemporaryDirectory directory;
  std::filesystem::create_directories(directory / ".gradmon/e");
  const auto file = directory / ".gradmon/e/history.jsonl";
  REQUIRE(append_history(file, {{0, entry(1)}}));
  std::ofstream(file, std::ios::app) << R"({"key": 1, "revi)";
  REQUIRE(history_from_files(directory.path())->size() == 1);
  REQUIRE(append_history(file, {{2, entry(3)}}));  // It does not take the next one with it.
  const auto history = history_from_files(directory.path());
  REQUIRE(history->size() == 2);
  CHECK(history->at(1).revision == Revision{3});
}

TEST_CASE("a change of a numbered entry's revision leaves no trace of the earlier one") {
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
TEST_CASE("a history of very many revisions is read in time") {
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

TEST_CASE("a write that the disk takes in part is an error with its cause") {
  TemporaryDirectory directory;
  const auto file = directory / ".gradmon/e/history.jsonl";
  std::filesystem::create_directories(file.parent_path());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = 10;
  const auto signal_before = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &full);
  const auto appended = append_history(file, {{0, entry(1)}});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, signal_before);
  REQUIRE_FALSE(appended);
  CHECK(appended.error() == file.string() + ": File too large");
}

TEST_CASE("a directory without history says so") {
  TemporaryDirectory directory;
  REQUIRE_FALSE(history_from_files(directory.path()));
}

}  // namespace
}  // namespace gradmon
