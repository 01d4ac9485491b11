// SPDX-License-Identifier: Apache-2.0
#include "control/hub/decision_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

JobIdentity fresh(std::string epoch, std::string launch = "launch") {
  return {std::move(epoch), "0badcafe", 1'234, std::move(launch)};
}

PlanPtr plan(const std::string& text) {
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->config_text = text;
  return plan;
}

LogEntry offered(std::uint64_t revision) { return OfferedEntry{Revision{revision}, plan("{}")}; }
LogEntry verdict(std::uint64_t revision) {
  return Verdict{Revision{revision}, plan("{}"), Step{100}, AbortReason::none, ""};
}

std::uint64_t revision_of(const LogEntry& entry) {
  if (const auto* each = std::get_if<OfferedEntry>(&entry)) return each->revision.value;
  if (const auto* each = std::get_if<Verdict>(&entry)) return each->revision.value;
  return 0;
}

struct Log {
  TemporaryDirectory directory;
  fs::path path = directory / "decisions";

  DecisionFile::Opened open(JobIdentity identity = fresh("later")) const {
    auto opened = DecisionFile::open(path, std::move(identity));
    INFO((opened ? "" : opened.error()));
    REQUIRE(opened);
    return std::move(*opened);
  }
  // Makes a log of the epoch "first" with so many entries; returns its bytes.
  std::string with_entries(std::uint64_t entries) const {
    const auto opened = open(fresh("first"));
    for (std::uint64_t i = 1; i <= entries; ++i) REQUIRE(opened.file->append(offered(i)));
    std::string bytes = read_text(path);
    bytes.resize(bytes.find_last_not_of('\0') + 1);  // without the reserved space
    return bytes;
  }
};

TEST_CASE("a removed log is written again with all its entries and can be continued") {
  const Log log;
  const auto opened = log.open(fresh("first"));
  REQUIRE(opened.file->append(offered(1)));
  CHECK(opened.file->is_at_its_path());
  fs::remove(log.path);
  CHECK_FALSE(opened.file->is_at_its_path());
  REQUIRE(opened.file->append(verdict(1)));
  REQUIRE(opened.file->relink());
  CHECK(opened.file->is_at_its_path());
  REQUIRE(opened.file->append(offered(2)));
  const auto again = log.open();
  CHECK(again.identity.epoch == "first");
  REQUIRE(again.entries.size() == 3);
  CHECK(revision_of(again.entries[2]) == 2);
}

TEST_CASE("a file that another process put in the place of a log stays") {
  const Log log;
  const auto opened = log.open(fresh("first"));
  fs::remove(log.path);
  write_text(log.path, "another");
  CHECK_FALSE(opened.file->relink());
  CHECK(read_text(log.path) == "another");
  CHECK(std::distance(fs::directory_iterator(log.directory.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a new log starts the given epoch and the next hubs continue it") {
  const Log log;
  const std::string launch = std::string("a\nb\0c\n", 6);  // line ends stay
  {
    const auto first = log.open(fresh("first", launch));
    CHECK(first.identity.epoch == "first");
    CHECK(first.entries.empty());
    REQUIRE(first.file->append(offered(1)));
    REQUIRE(first.file->append(verdict(1)));
    REQUIRE(first.file->append(DepartureEntry{Rank{1}, DepartureEntry::How::dropped, Step{7}, ""}));
  }
  for (std::uint64_t life = 2; life < 5; ++life) {
    const auto later = log.open(fresh("later", launch));
    CHECK(later.identity.epoch == "first");
    CHECK(later.identity.run_id == "0badcafe");
    CHECK(later.identity.started == 1'234);
    CHECK(later.identity.launch_id == launch);
    REQUIRE(later.entries.size() == 3 + life - 2);
    CHECK(std::get<DepartureEntry>(later.entries[2]).last == Step{7});
    REQUIRE(later.file->append(offered(life)));
  }
}

TEST_CASE("the log of another launch is replaced") {
  const Log log;
  log.with_entries(3);
  {
    const auto opened = log.open(fresh("second", "another"));
    CHECK(opened.identity.epoch == "second");
    CHECK(opened.entries.empty());
    REQUIRE(opened.file->append(offered(9)));
  }
  const auto again = log.open(fresh("third", "another"));
  CHECK(again.identity.epoch == "second");
  REQUIRE(again.entries.size() == 1);
  CHECK(revision_of(again.entries[0]) == 9);
}

TEST_CASE("wherever the log is cut off the entries before the cut are read and new ones follow them") {
  const Log log;
  const std::string whole = log.with_entries(3);
  std::size_t most = 0;
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    write_text(log.path, whole.substr(0, cut));
    const std::size_t left = log.open(fresh("later")).entries.size();
    REQUIRE(left >= most);  // more of the file never means fewer entries
    most = left;
    if (cut % 7 != 0) continue;
    {
      const auto opened = log.open(fresh("later"));
      REQUIRE(opened.file->append(offered(77)));
    }
    const auto again = log.open(fresh("latest"));
    CHECK(again.identity.epoch != "latest");
    REQUIRE(again.entries.size() == left + 1);
    CHECK(revision_of(again.entries.back()) == 77);
  }
  CHECK(most == 3);
}

TEST_CASE("a flipped bit never gives an entry that was not written") {
  const Log log;
  const std::string whole = log.with_entries(3);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string spoilt = whole;
    spoilt[bit / 8] = static_cast<char>(spoilt[bit / 8] ^ (1 << (bit % 8)));
    write_text(log.path, spoilt);
    const auto opened = log.open(fresh("later"));
    REQUIRE(opened.entries.size() < 3);
    for (std::size_t i = 0; i < opened.entries.size(); ++i) REQUIRE(revision_of(opened.entries[i]) == i + 1);
    REQUIRE((opened.identity.epoch == "first" || opened.identity.epoch == "later"));
    if (opened.identity.epoch == "later") REQUIRE(opened.entries.empty());
  }
}

TEST_CASE("entries behind a damaged entry do not come back when the log has grown again") {
  const Log log;
  const std::string whole = log.with_entries(3);
  const std::size_t entry = whole.size() / 4;
  std::string spoilt = whole;
  spoilt[whole.size() - 2 * entry + entry / 2] ^= 1;  // in the second of three
  write_text(log.path, spoilt);
  std::size_t left = 0;
  {
    const auto opened = log.open();
    left = opened.entries.size();
    REQUIRE(left < 3);
    REQUIRE(opened.file->append(offered(2)));
  }
  const auto again = log.open();
  REQUIRE(again.entries.size() == left + 1);
}

TEST_CASE("an entry that a later release has written is skipped and stays in the log") {
  const Log log;
  log.with_entries(2);
  {
    const auto opened = log.open();
    const auto later = static_cast<DepartureEntry::How>(99);
    REQUIRE(opened.file->append(LogEntry(DepartureEntry{Rank{0}, later, Step{1}, ""})));
    REQUIRE(opened.file->append(offered(3)));
  }
  for (int hub = 0; hub < 2; ++hub) {
    const auto opened = log.open();
    REQUIRE(opened.entries.size() == 3);
    CHECK(revision_of(opened.entries.back()) == 3);
  }
}

TEST_CASE("random bytes are a log without entries and never a crash") {
  const Log log;
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string noise(random() % 4'000, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    if (i % 3 == 0 && noise.size() > 8) noise.replace(0, 4, std::string("\xff\xff\xff\xff", 4));
    write_text(log.path, noise);
    const auto opened = log.open(fresh("later"));
    REQUIRE(opened.identity.epoch == "later");
    REQUIRE(opened.entries.empty());
  }
}

TEST_CASE("a log that cannot be trusted is refused and left alone") {
  const Log log;
  const auto refused = [&] { return !DecisionFile::open(log.path, fresh("later")); };
  const fs::path aside = log.directory / "aside";
  write_text(aside, "mine");
  fs::create_symlink(aside, log.path);
  CHECK(refused());
  CHECK(read_text(aside) == "mine");
  fs::remove(log.path);
  REQUIRE(mkfifo(log.path.c_str(), 0600) == 0);
  CHECK(refused());
  fs::remove(log.path);
  fs::create_directory(log.path);
  CHECK(refused());
  fs::remove(log.path);
  write_text(log.path, "");
  REQUIRE(truncate(log.path.c_str(), off_t{1} << 30) == 0);
  CHECK(refused());
  fs::remove(log.path);
  CHECK_FALSE(DecisionFile::open(log.directory / "missing" / "decisions", fresh("later")));
  if (!is_root("make another user's log")) return;
  write_text(log.path, "");
  REQUIRE(chown(log.path.c_str(), 65'534, 65'534) == 0);
  CHECK(refused());
}

TEST_CASE("only its owner can read the log") {
  const Log log;
  const mode_t before = umask(0);
  log.open();
  umask(before);
  CHECK((mode_of(log.path) & 0077U) == 0);
}

TEST_CASE("without space an entry is refused and is not read later") {
  const Log log;
  std::uint64_t taken = 0;
  {
    const auto opened = log.open(fresh("first"));
    REQUIRE(opened.file->append(offered(++taken)));
    const FileSizeLimit full(fs::file_size(log.path));
    // The reserved space is used up first.
    while (opened.file->append(OfferedEntry{Revision{taken + 1}, plan(std::string(10'000, 'x'))})) ++taken;
    CHECK(taken > 10);
    CHECK(taken < 1'000);
    CHECK_FALSE(opened.file->append(OfferedEntry{Revision{99'999}, plan(std::string(10'000, 'x'))}));
  }
  const auto again = log.open();
  CHECK(again.identity.epoch == "first");
  REQUIRE(again.entries.size() == taken);
  for (std::uint64_t i = 0; i < taken; ++i) CHECK(revision_of(again.entries[i]) == i + 1);
}

TEST_CASE("the log can be continued when there is space again") {
  const Log log;
  const auto opened = log.open(fresh("first"));
  {
    const FileSizeLimit full(fs::file_size(log.path));
    CHECK_FALSE(opened.file->append(OfferedEntry{Revision{1}, plan(std::string(3'000'000, 'x'))}));
  }
  REQUIRE(opened.file->append(offered(2)));
  const auto again = log.open();
  REQUIRE(again.entries.size() == 1);
  CHECK(revision_of(again.entries[0]) == 2);
}

TEST_CASE("a log at its size limit refuses entries and the next hub reads all accepted ones") {
  const Log log;
  constexpr std::int64_t bound = 4 << 20;
  std::uint64_t taken = 0;
  std::string why;
  {
    const auto opened = DecisionFile::open(log.path, fresh("first"), {bound});
    REQUIRE(opened);
    for (tl::expected<void, std::string> put; put && taken < 1'000; taken += put ? 1 : 0) {
      put = opened->file->append(OfferedEntry{Revision{taken + 1}, plan(std::string(100'000, 'x'))});
      if (!put) why = put.error();
    }
    CHECK(opened->file->append(offered(taken + 1)));  // A small one still fits.
  }
  CHECK(why == "the decision log has reached its bound of 4 MiB");
  CHECK(taken > 30);
  CHECK(fs::file_size(log.path) <= bound);
  const auto again = DecisionFile::open(log.path, fresh("later"), {bound});
  REQUIRE(again);
  CHECK(again->entries.size() == taken + 1);
}

TEST_CASE("a log that grows is written anew without old plans and can be continued") {
  const Log log;
  const DecisionFile::Bounds bounds{std::int64_t{1} << 20, 100'000};
  std::uint64_t highest = 0;
  {
    const auto opened = DecisionFile::open(log.path, fresh("first"), bounds);
    REQUIRE(opened);
    REQUIRE(opened->file->append(JoinedEntry{Rank{3}, 1, {}}));
    while (highest < 200) {
      const PlanPtr large = plan(std::string(10'000, 'x'));
      REQUIRE(opened->file->append(OfferedEntry{Revision{++highest}, large}));
      REQUIRE(opened->file->append(Verdict{Revision{highest}, large, Step{100}, AbortReason::none, ""}));
    }
    CHECK(opened->file->is_at_its_path());
  }
  const auto again = DecisionFile::open(log.path, fresh("later"), bounds);
  REQUIRE(again);
  CHECK(again->identity.epoch == "first");
  CHECK(again->identity.run_id == "0badcafe");
  REQUIRE(again->entries.size() > 2);
  CHECK(again->entries.size() < 15);
  CHECK(std::get<JoinedEntry>(again->entries.front()).rank == Rank{3});
  CHECK(std::get<Verdict>(again->entries.back()).revision == Revision{highest});
  CHECK(std::distance(fs::directory_iterator(log.directory.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a removed log is not written anew beside one that another hub has put there") {
  const Log log;
  const auto opened = DecisionFile::open(log.path, fresh("first"), {std::int64_t{1} << 20, 1'000});
  REQUIRE(opened);
  fs::remove(log.path);
  write_text(log.path, "another");
  for (std::uint64_t revision = 1; revision < 100; ++revision)
    REQUIRE(opened->file->append(offered(revision)));
  CHECK(read_text(log.path) == "another");
}

TEST_CASE("a log without space at the start is an error") {
  const Log log;
  const FileSizeLimit full(0);
  CHECK_FALSE(DecisionFile::open(log.path, fresh("first")));
}

}  // namespace
}  // namespace gradmon
