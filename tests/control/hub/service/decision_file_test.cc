// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/decision_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

EpochHeader fresh(std::string epoch, std::string launch = "launch") {
  return {std::move(epoch), std::move(launch), "0badcafe", 1'234};
}

PlanPtr plan(const std::string& text) {
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->config_text = text;
  return plan;
}

LogEntry asked(std::uint64_t revision) { return OfferedEntry{Revision{revision}, plan("{}")}; }
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

  DecisionFile::Opened open(EpochHeader header = fresh("later")) const {
    auto opened = DecisionFile::open(path, std::move(header));
    INFO((opened ? "" : opened.error()));
    REQUIRE(opened);
    return std::move(*opened);
  }
  // A log of the epoch "first" with so many entries; gives the whole of its bytes.
  std::string with_entries(std::uint64_t entries) const {
    const auto opened = open(fresh("first"));
    for (std::uint64_t i = 1; i <= entries; ++i) REQUIRE(opened.file->append(asked(i)));
    std::string bytes = read_text(path);
    bytes.resize(bytes.find_last_not_of('\0') + 1);  // the reserved room
    return bytes;
  }
};

TEST_CASE("a log that was removed with its directory is written anew, whole, and goes on") {
  const Log log;
  const auto opened = log.open(fresh("first"));
  REQUIRE(opened.file->append(asked(1)));
  CHECK(opened.file->is_at_its_path());
  fs::remove(log.path);
  CHECK_FALSE(opened.file->is_at_its_path());
  REQUIRE(opened.file->append(verdict(1)));
  REQUIRE(opened.file->relink());
  CHECK(opened.file->is_at_its_path());
  REQUIRE(opened.file->append(asked(2)));
  const auto again = log.open();
  CHECK(again.header.epoch == "first");
  REQUIRE(again.entries.size() == 3);
  CHECK(revision_of(again.entries[2]) == 2);
}

TEST_CASE("what another has put in the place of a log stays") {
  const Log log;
  const auto opened = log.open(fresh("first"));
  fs::remove(log.path);
  write_text(log.path, "another");
  CHECK_FALSE(opened.file->relink());
  CHECK(read_text(log.path) == "another");
  CHECK(std::distance(fs::directory_iterator(log.directory.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a new log begins the epoch it was given and a later life goes on with it") {
  const Log log;
  {
    const auto first = log.open(fresh("first"));
    CHECK(first.header.epoch == "first");
    CHECK(first.entries.empty());
    REQUIRE(first.file->append(asked(1)));
    REQUIRE(first.file->append(verdict(1)));
    REQUIRE(first.file->append(DepartureEntry{Rank{1}, DepartureEntry::How::dropped, Step{7}, ""}));
  }
  for (std::uint64_t life = 2; life < 5; ++life) {
    const auto later = log.open(fresh("later"));
    CHECK(later.header.epoch == "first");
    CHECK(later.header.run_id == "0badcafe");
    CHECK(later.header.started == 1'234);
    CHECK(later.header.launch_id == "launch");
    REQUIRE(later.entries.size() == 3 + life - 2);
    CHECK(std::get<DepartureEntry>(later.entries[2]).last == Step{7});
    REQUIRE(later.file->append(asked(life)));
  }
}

TEST_CASE("a launch id with line ends comes back whole") {
  const Log log;
  const std::string launch = std::string("a\nb\0c\n", 6);
  log.open(fresh("first", launch));
  CHECK(log.open(fresh("later", launch)).header.epoch == "first");
}

TEST_CASE("the log of another launch is replaced") {
  const Log log;
  log.with_entries(3);
  {
    const auto opened = log.open(fresh("second", "another"));
    CHECK(opened.header.epoch == "second");
    CHECK(opened.entries.empty());
    REQUIRE(opened.file->append(asked(9)));
  }
  const auto again = log.open(fresh("third", "another"));
  CHECK(again.header.epoch == "second");
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
      REQUIRE(opened.file->append(asked(77)));
    }
    const auto again = log.open(fresh("latest"));
    CHECK(again.header.epoch != "latest");
    REQUIRE(again.entries.size() == left + 1);
    CHECK(revision_of(again.entries.back()) == 77);
  }
  CHECK(most == 3);
}

TEST_CASE("a bit flipped anywhere never gives an entry that was not written") {
  const Log log;
  const std::string whole = log.with_entries(3);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string spoilt = whole;
    spoilt[bit / 8] = static_cast<char>(spoilt[bit / 8] ^ (1 << (bit % 8)));
    write_text(log.path, spoilt);
    const auto opened = log.open(fresh("later"));
    REQUIRE(opened.entries.size() < 3);
    for (std::size_t i = 0; i < opened.entries.size(); ++i) REQUIRE(revision_of(opened.entries[i]) == i + 1);
    REQUIRE((opened.header.epoch == "first" || opened.header.epoch == "later"));
    if (opened.header.epoch == "later") REQUIRE(opened.entries.empty());
  }
}

TEST_CASE("what lay behind a torn entry does not come back when the log has grown again") {
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
    REQUIRE(opened.file->append(asked(2)));
  }
  const auto again = log.open();
  REQUIRE(again.entries.size() == left + 1);
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
    REQUIRE(opened.header.epoch == "later");
    REQUIRE(opened.entries.empty());
  }
}

TEST_CASE("a log that cannot be trusted is refused at once and left alone") {
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
  if (geteuid() == 0) {
    write_text(log.path, "");
    REQUIRE(chown(log.path.c_str(), 65'534, 65'534) == 0);
    CHECK(refused());
  }
  fs::remove(log.path);
  CHECK_FALSE(DecisionFile::open(log.directory / "missing" / "decisions", fresh("later")));
}

TEST_CASE("the log can be read by its owner alone") {
  const Log log;
  const mode_t before = umask(0);
  log.open();
  umask(before);
  struct stat status {};
  REQUIRE(stat(log.path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0077U) == 0);
}

// A bound on the size of files stands for a file system that is full.
struct NoRoom {
  rlimit before{};
  explicit NoRoom(std::uintmax_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit now{bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~NoRoom() { setrlimit(RLIMIT_FSIZE, &before); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
};

TEST_CASE("where there is no room an entry is refused and not read later") {
  const Log log;
  std::uint64_t taken = 0;
  {
    const auto opened = log.open(fresh("first"));
    REQUIRE(opened.file->append(asked(++taken)));
    const NoRoom full(fs::file_size(log.path));
    // What was reserved is used up first.
    while (opened.file->append(OfferedEntry{Revision{taken + 1}, plan(std::string(10'000, 'x'))})) ++taken;
    CHECK(taken > 10);
    CHECK(taken < 1'000);
    CHECK_FALSE(opened.file->append(OfferedEntry{Revision{99'999}, plan(std::string(10'000, 'x'))}));
  }
  const auto again = log.open();
  CHECK(again.header.epoch == "first");
  REQUIRE(again.entries.size() == taken);
  for (std::uint64_t i = 0; i < taken; ++i) CHECK(revision_of(again.entries[i]) == i + 1);
}

TEST_CASE("when there is room again the log goes on") {
  const Log log;
  const auto opened = log.open(fresh("first"));
  {
    const NoRoom full(fs::file_size(log.path));
    CHECK_FALSE(opened.file->append(OfferedEntry{Revision{1}, plan(std::string(3'000'000, 'x'))}));
  }
  REQUIRE(opened.file->append(asked(2)));
  const auto again = log.open();
  REQUIRE(again.entries.size() == 1);
  CHECK(revision_of(again.entries[0]) == 2);
}

TEST_CASE("a log at its bound refuses entries, and the next hub reads all that it took") {
  const Log log;
  constexpr std::int64_t bound = 4 << 20;
  std::uint64_t taken = 0;
  std::string why;
  {
    const auto opened = DecisionFile::open(log.path, fresh("first"), bound);
    REQUIRE(opened);
    for (tl::expected<void, std::string> put; put && taken < 1'000; taken += put ? 1 : 0) {
      put = opened->file->append(OfferedEntry{Revision{taken + 1}, plan(std::string(100'000, 'x'))});
      if (!put) why = put.error();
    }
    CHECK(opened->file->append(asked(taken + 1)));  // A small one still fits.
  }
  CHECK(why == "the decision log has reached its bound of 4 MiB");
  CHECK(taken > 30);
  CHECK(fs::file_size(log.path) <= bound);
  const auto again = DecisionFile::open(log.path, fresh("later"), bound);
  REQUIRE(again);
  CHECK(again->entries.size() == taken + 1);
}

TEST_CASE("a log for which there is no room at the start is an error") {
  const Log log;
  const NoRoom full(0);
  CHECK_FALSE(DecisionFile::open(log.path, fresh("first")));
}

TEST_CASE("on a full tmpfs an entry is refused and the log goes on when there is room") {
  const TemporaryDirectory directory;
  const fs::path memory = directory / "memory";
  fs::create_directory(memory);
  if (mount("none", memory.c_str(), "tmpfs", 0, "size=4m") != 0) return;  // not in this container
  const fs::path path = memory / "decisions";
  std::size_t taken = 0;
  {
    auto opened = DecisionFile::open(path, fresh("first"));
    REQUIRE(opened);
    write_text(memory / "filler", std::string(4 << 20, 'x'));
    while (opened->file->append(OfferedEntry{Revision{taken + 1}, plan(std::string(10'000, 'x'))})) ++taken;
    CHECK(taken > 10);
    fs::remove(memory / "filler");
    CHECK(opened->file->append(asked(++taken)));
  }
  {
    const auto again = DecisionFile::open(path, fresh("later"));
    REQUIRE(again);
    CHECK(again->entries.size() == taken);
  }
  umount(memory.c_str());
}

TEST_CASE("thousands of entries are restored in order") {
  const Log log;
  {
    const auto opened = log.open(fresh("first"));
    for (std::uint64_t i = 1; i <= 20'000; ++i) REQUIRE(opened.file->append(asked(i)));
  }
  const auto again = log.open();
  REQUIRE(again.entries.size() == 20'000);
  for (std::uint64_t i = 0; i < 20'000; ++i) REQUIRE(revision_of(again.entries[i]) == i + 1);
}

}  // namespace
}  // namespace gradmon
