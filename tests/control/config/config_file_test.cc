// SPDX-License-Identifier: Apache-2.0
// Which files ConfigFile reports, and when. The test moves the clock.
#include "control/config/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "control/config/config_parser.h"
#include "control/config/json_text.h"
#include "control/host/unix_stream.h"
#include "control/log.h"
#include "tests/control/config/scratch_directory.h"
#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

using namespace testing;
using std::chrono::milliseconds;

using Reports = std::vector<std::string>;

// All reports within `duration` of fake time; polls as often as next_poll() says.
Reports reports_within(ConfigFile& file, FakeClock& clock, milliseconds duration) {
  Reports all;
  const auto end = clock.now + duration;
  for (;;) {
    if (const auto report = file.poll())
      all.push_back(*report ? report->value().text : "(problem) " + report->error());
    const auto pause = std::max(file.next_poll(), milliseconds(1));
    if (clock.now + pause > end) break;
    clock.now += pause;
  }
  clock.now = end;
  return all;
}

// A file "{}" whose first report has come.
struct WatchedFile {
  ScratchDirectory directory;
  const fs::path path = directory / "c";
  FakeClock clock;
  std::unique_ptr<ConfigFile> file;

  WatchedFile() {
    save_in_place(path, "{}");
    file = std::make_unique<ConfigFile>(path, clock.clock());
    REQUIRE(reports_within(milliseconds(3000)) == Reports{"{}"});
  }
  Reports reports_within(milliseconds duration) { return gradmon::reports_within(*file, clock, duration); }
};

}  // namespace

TEST_CASE("a file that was saved long ago is reported by the first poll") {
  ScratchDirectory directory;
  save_old(directory / "c", "{}");
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  const auto report = file.poll();
  REQUIRE(report.has_value());
  REQUIRE(report->has_value());
  CHECK((*report)->text == "{}");
  CHECK((*report)->identity.size == 2);
  CHECK((*report)->identity.sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
  CHECK_FALSE(file.poll().has_value());
}

TEST_CASE("a content is reported with its config, and is parsed once however often it is saved") {
  ScratchDirectory directory;
  const auto path = directory / "c";
  ConfigFile file(path);
  const auto parsed_of = [&](const std::string& text) {
    save_by_rename(path, text);
    const auto report = wait_for_report(file);
    REQUIRE((report && *report));
    CHECK((*report)->text == text);
    REQUIRE((*report)->parsed);
    return (*report)->parsed;
  };
  const auto first = parsed_of("{\"eps\": 2}");
  REQUIRE(*first);
  CHECK((*first)->config.eps == 2);
  CHECK(parsed_of("{\"eps\": 2}") == first);
  const auto edited = file.edit({{"eps", "3"}}, std::nullopt);
  REQUIRE(edited);
  CHECK((*edited->parsed)->config.eps == 3);
  CHECK(parsed_of(edited->text) == edited->parsed);
  const auto broken = parsed_of("{\"eps\": 0}");
  REQUIRE_FALSE(*broken);
  CHECK(to_string(broken->error()) == path.string() + ":1:9: /eps: found 0, expected a number > 0");
}

TEST_CASE("a file missing at the start is reported at once and read when it appears") {
  ScratchDirectory directory;
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  CHECK(reports_within(file, clock, milliseconds(5000)) == Reports{"(problem) there is no such file"});
  save_in_place(directory / "c", "{}");
  CHECK(reports_within(file, clock, milliseconds(500)) == Reports{"{}"});
}

TEST_CASE("a file deleted later is reported as missing once and the next save is read") {
  WatchedFile c;
  fs::rename(c.path, c.directory / "d");
  CHECK(c.reports_within(milliseconds(900)).empty());
  CHECK(c.reports_within(milliseconds(60'000)) == Reports{"(problem) there is no such file"});
  fs::rename(c.directory / "d", c.path);
  CHECK(c.reports_within(milliseconds(5000)) == Reports{"{}"});
}

TEST_CASE("an empty or broken file is reported once after a second") {
  for (const std::string& broken :
       {std::string(), std::string("  \n"), std::string("\0\0\0", 3), std::string("{\"a\""),
        std::string("[]"), std::string("\xFF\xFE{\0}\0", 6)}) {
    WatchedFile c;
    save_in_place(c.path, broken);
    CHECK(c.reports_within(milliseconds(900)).empty());
    CHECK(c.reports_within(milliseconds(20'000)) == Reports{broken});
    save_by_rename(c.path, broken + " ");
    CHECK(c.reports_within(milliseconds(900)).empty());
    save_by_rename(c.path, "{ }");
    CHECK(c.reports_within(milliseconds(1)) == Reports{"{ }"});
  }
}

TEST_CASE("a rename is reported at once and writing in place after a pause") {
  WatchedFile c;
  save_by_rename(c.path, "{ }");
  const auto report = c.file->poll();
  REQUIRE(report.has_value());
  c.clock.now += milliseconds(1000);
  save_in_place(c.path, "{  }");
  CHECK_FALSE(c.file->poll().has_value());
  CHECK(c.reports_within(milliseconds(99)).empty());
  CHECK(c.reports_within(milliseconds(10)) == Reports{"{  }"});
}

TEST_CASE("a file that its writer has not closed is not reported yet") {
  WatchedFile c;
  std::ofstream writer(c.path, std::ios::trunc);
  writer << "{\"a\": 1}" << std::flush;
  CHECK(c.reports_within(milliseconds(1000)).empty());
  writer << "   " << std::flush;
  CHECK(c.reports_within(milliseconds(1900)).empty());
  writer.close();
  CHECK(c.reports_within(milliseconds(200)) == Reports{"{\"a\": 1}   "});
}

TEST_CASE("the same content with another time stamp is a save") {
  WatchedFile c;
  make_old(c.path);
  CHECK(c.reports_within(milliseconds(3000)) == Reports{"{}"});
  fs::last_write_time(c.path, fs::file_time_type::clock::now() + std::chrono::hours(1000));
  CHECK(c.reports_within(milliseconds(3000)) == Reports{"{}"});
  fs::permissions(c.path, fs::perms(0600));
  CHECK(c.reports_within(milliseconds(30'000)).empty());
}

TEST_CASE("a file that is not regular or too large is refused without blocking") {
  ScratchDirectory directory;
  const auto path = directory / "c";
  std::string expected = "(problem) it is not a regular file";
  SECTION("fifo") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  SECTION("directory") { fs::create_directory(path); }
  SECTION("device") { fs::create_symlink("/dev/zero", path); }
  SECTION("socket") { ::close(bind_unix(path).value()); }
  SECTION("dangling link") {
    fs::create_symlink("nowhere", path);
    expected = "(problem) there is no such file";
  }
  SECTION("link to itself") {
    fs::create_symlink("c", path);
    expected = "(problem) it cannot be read: Too many levels of symbolic links";
  }
  SECTION("over 1 MiB") {
    save_in_place(path, std::string((std::size_t{1} << 20U) + 1, ' '));
    expected = "(problem) it is larger than 1 MiB";
  }
  SECTION("a sparse file of 1 GiB") {
    save_in_place(path, "");
    fs::resize_file(path, std::uintmax_t{1} << 30U);
    expected = "(problem) it is larger than 1 MiB";
  }
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  CHECK(reports_within(file, clock, milliseconds(5000)) == Reports{expected});
  const auto edited = file.edit({{"a", "1"}}, std::nullopt);
  REQUIRE_FALSE(edited.has_value());
  CHECK(edited.error().kind == EditError::Kind::unreadable);
  fs::remove_all(path);
  save_in_place(path, "{}");
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{}"});
}

TEST_CASE("without inotify the file is polled and saves are still reported") {
  ScratchDirectory directory;
  save_in_place(directory / "c", "{}");
  FakeClock clock;
  // UBSan needs a descriptor when it first sees a class: it must see the logger's before the limit.
  log_info("a process without descriptors follows");
  auto none = std::make_unique<const DescriptorLimit>(rlim_t{0});
  ConfigFile file(directory / "c", clock.clock());
  none.reset();
  CHECK(file.event_fd() == -1);
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{}"});
  save_in_place(directory / "c", "{ }");
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{ }"});
  save_by_rename(directory / "c", "{  }");
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{  }"});
}

TEST_CASE("a replaced directory is watched again") {
  ScratchDirectory directory;
  fs::create_directory(directory / "conf");
  save_in_place(directory / "conf/c", "{}");
  FakeClock clock;
  ConfigFile file(directory / "conf/c", clock.clock());
  REQUIRE(reports_within(file, clock, milliseconds(3000)) == Reports{"{}"});
  fs::create_directory(directory / "next");
  save_in_place(directory / "next/c", "{ }");
  fs::rename(directory / "conf", directory / "old");
  fs::rename(directory / "next", directory / "conf");
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{ }"});
  save_by_rename(directory / "conf/c", "{  }");
  CHECK(reports_within(file, clock, milliseconds(300)) == Reports{"{  }"});
}

namespace {

using namespace testing;

// A text that holds its number twice. In a mix of two versions the two numbers differ.
std::string numbered_text(int n, int padding = 2000) {
  const auto digits = std::to_string(1'000'000 + n);
  return "{\"first\": " + digits + ", \"pad\": \"" + std::string(static_cast<std::size_t>(padding), 'x') +
         "\", \"last\": " + digits + "}\n";
}
int number_of(std::string_view text) {
  const auto first = value_at(text, "/first");
  const auto last = value_at(text, "/last");
  return first && last && *first == *last ? std::stoi(std::string(*first)) - 1'000'000 : -1;
}

std::string shell_quoted(const fs::path& path) { return "'" + path.string() + "'"; }

void run(const std::string& command) {
  const int status = std::system(command.c_str());
  if (status != 0) throw std::runtime_error(command);
}

void write_slowly(const fs::path& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  for (std::size_t at = 0; at < text.size(); at += 500) {
    const auto part = text.substr(at, 500);
    if (::write(fd, part.data(), part.size()) < 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(120));  // longer than the settle time of 100 ms
  }
  ::close(fd);
}

// Overwrites without truncation, in two halves. Between them the file is a mix of
// two versions.
void overwrite_in_halves(const fs::path& path, const std::string& text, std::chrono::milliseconds between) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const auto half = text.size() / 2;
  if (::pwrite(fd, text.data(), half, 0) >= 0) {
    std::this_thread::sleep_for(between);
    if (::pwrite(fd, text.data() + half, text.size() - half, static_cast<off_t>(half)) < 0) std::abort();
  }
  if (::ftruncate(fd, static_cast<off_t>(text.size())) != 0) std::abort();
  ::close(fd);
}

struct SaveMethod {
  const char* name;
  std::function<void(const fs::path&, const std::string&)> save;
};

const std::vector<SaveMethod>& save_methods() {
  static const std::vector<SaveMethod> all{
      {"in place", [](const fs::path& path, const std::string& text) { save_in_place(path, text); }},
      {"slowly", write_slowly},
      {"overwritten",
       [](const fs::path& path, const std::string& text) {
         overwrite_in_halves(path, text, std::chrono::milliseconds(150));
       }},
      {"rename", [](const fs::path& path, const std::string& text) { save_by_rename(path, text); }},
      {"sed -i",
       [](const fs::path& path, const std::string& text) {
         const auto old = std::to_string(1'000'000 + number_of(read_text(path)));
         run("sed -i s/" + old + "/" + std::to_string(1'000'000 + number_of(text)) + "/g " +
             shell_quoted(path));
       }},
      {"backup and rename, as vim",
       [](const fs::path& path, const std::string& text) {
         fs::rename(path, path.string() + "~");
         save_in_place(path, text);
         fs::permissions(path, fs::perms(0644));
         fs::remove(path.string() + "~");
       }},
      {"cp",
       [](const fs::path& path, const std::string& text) {
         save_in_place(path.string() + ".other", text);
         run("cp " + shell_quoted(path.string() + ".other") + " " + shell_quoted(path));
       }},
      {"mv",
       [](const fs::path& path, const std::string& text) {
         save_in_place(path.string() + ".other", text);
         run("mv " + shell_quoted(path.string() + ".other") + " " + shell_quoted(path));
       }},
      {"removed and made again",
       [](const fs::path& path, const std::string& text) {
         fs::remove(path);
         save_in_place(path, text);
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("each save is reported once and complete whichever way it is made") {
  ScratchDirectory directory;
  const auto path = directory / "config.json";
  save_old(path, numbered_text(0));
  ConfigFile file(path);
  REQUIRE(next_text(file) == numbered_text(0));
  int n = 0;
  for (int round = 0; round < (full_scale() ? 10 : 3); ++round) {
    for (const auto& method : save_methods()) {
      INFO(method.name);
      ++n;
      std::thread user([&] { method.save(path, numbered_text(n)); });
      const auto seen = next_text(file);
      user.join();
      CHECK(number_of(seen) == n);
      CHECK(seen == numbered_text(n));
    }
  }
}

TEST_CASE("a changed symbolic link is reported as a save") {
  ScratchDirectory directory;
  const auto path = directory / "config.json";
  save_old(directory / "a.json", numbered_text(1));
  save_old(directory / "b.json", numbered_text(2));
  fs::create_symlink("a.json", path);
  ConfigFile file(path);
  REQUIRE(next_text(file) == numbered_text(1));
  run("ln -sfn b.json " + shell_quoted(path));
  CHECK(next_text(file) == numbered_text(2));
  save_in_place(directory / "b.json", numbered_text(3));
  CHECK(next_text(file) == numbered_text(3));
  fs::create_symlink("a.json", directory / "link");
  fs::rename(directory / "link", path);
  CHECK(next_text(file) == numbered_text(1));
}

TEST_CASE("an update of a Kubernetes config map is reported as a save") {
  ScratchDirectory directory;
  const auto update = [&](int n) {
    const auto stamp = "..2026_0" + std::to_string(n);
    fs::create_directory(directory / stamp);
    save_in_place(directory / stamp / "config.json", numbered_text(n));
    fs::create_symlink(stamp, directory / "..data_tmp");
    fs::rename(directory / "..data_tmp", directory / "..data");
  };
  update(1);
  fs::create_symlink("..data/config.json", directory / "config.json");
  ConfigFile file(directory / "config.json");
  REQUIRE(next_text(file) == numbered_text(1));
  for (int n = 2; n < 6; ++n) {
    update(n);
    CHECK(next_text(file) == numbered_text(n));
    fs::remove_all(directory / ("..2026_0" + std::to_string(n - 1)));
  }
}

TEST_CASE("rapid mixed saves are never reported in part and the last one is reported") {
  ScratchDirectory directory;
  const auto path = directory / "config.json";
  save_in_place(path, numbered_text(0));
  ConfigFile file(path);
  const int last = full_scale() ? 10'000 : 500;
  std::thread user([&] {
    for (int n = 1; n <= last; ++n) {
      const auto text = numbered_text(n, n % 3 == 0 ? 2000 : 60'000);
      switch (n % 4) {
        case 0:
          save_by_rename(path, text);
          break;
        case 1:
          save_in_place(path, text);
          break;
        default:
          overwrite_in_halves(path, text, std::chrono::milliseconds(n % 50 == 2 ? 150 : 0));
      }
      if (n % 97 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(n % 300));  // let some settle
    }
  });
  int seen = -1;
  std::vector<std::string> broken;
  while (seen != last) {
    const auto text = next_text(file);
    const int n = number_of(text);
    if (n < 0 || n < seen) broken.push_back(text.substr(0, 200));
    if (text == "(nothing)") break;
    seen = n;
  }
  user.join();
  CHECK(seen == last);
  CHECK(broken == std::vector<std::string>{});
}

TEST_CASE("saves every millisecond are reported at most four times a second and at the end") {
  ScratchDirectory directory;
  const auto path = directory / "config.json";
  save_old(path, numbered_text(0));
  ConfigFile file(path);
  REQUIRE(next_text(file) == numbered_text(0));
  const auto start = std::chrono::steady_clock::now();
  std::thread user([&] {
    for (int n = 1; n <= 1000; ++n) {
      save_by_rename(path, numbered_text(n));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  int reports = 0;
  std::string text;
  for (; number_of(text) != 1000 && text != "(nothing)"; ++reports) text = next_text(file);
  user.join();
  CHECK(number_of(text) == 1000);
  const auto quarters = (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(250);
  CHECK(reports <= quarters + 2);
}

}  // namespace gradmon
