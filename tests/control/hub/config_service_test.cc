// SPDX-License-Identifier: Apache-2.0
// ConfigService, and the write-back note that a job leaves to the next.
#include "control/hub/config_service.h"

#include <sys/stat.h>

#include "control/config/file_content.h"
#include "control/host/child_process.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using Names = std::vector<std::string>;

struct Registry {
  TemporaryDirectory directory;
  fs::path file = directory / ".config.json.gradmon-jobs";

  std::unique_ptr<JobRegistry> job(const std::string& launch, const std::string& name = "") const {
    auto made = std::make_unique<JobRegistry>(file, JobRegistry::Job{launch, name, "here"});
    made->refresh();
    return made;
  }
};

struct TwoJobs : Registry {
  std::unique_ptr<JobRegistry> one = job("launch-1"), two = job("launch-2");
};

FileIdentity save(const std::string& text) { return {wall_now() * 1'000'000, text.size(), sha256_hex(text)}; }

TEST_CASE("jobs with one config see each other while they live and the last job removes the file") {
  const Registry fixture;
  auto one = fixture.job("launch-1", "train.py");
  CHECK(one->refresh().empty());
  auto two = fixture.job("launch-2");
  CHECK(one->refresh() == Names{"job launch-2 on here"});
  CHECK(two->refresh() == Names{"job train.py (launch launch-1) on here"});
  auto three = fixture.job("launch-3");
  two.reset();
  CHECK(one->refresh() == Names{"job launch-3 on here"});
  one.reset();
  CHECK(three->refresh().empty());
  three.reset();
  CHECK(fs::is_empty(fixture.directory.path()));
}

TEST_CASE("jobs with long names full of escapes see each other") {
  const Registry fixture;
  const auto text = [](char last) { return std::string(299, '\x01') + last; };
  JobRegistry one(fixture.file, {"1" + text('"'), text('\\'), text('\xff')});
  JobRegistry two(fixture.file, {"2" + text('"'), text('\\'), text('\xff')});
  JobRegistry again(fixture.file, {"1" + text('"'), text('\\'), text('\xff')});
  one.refresh();
  two.refresh();
  again.refresh();
  REQUIRE(one.refresh().size() == 1);
  CHECK(one.refresh().front().rfind("job \x01", 0) == 0);
  CHECK(two.refresh().size() == 2);
  const FileIdentity written = save("{}");
  one.about_to_write(written.sha256);
  one.has_written(written);
  CHECK(two.find_writer(written));
}

TEST_CASE("a job without a live rank is not named and its last write is still known as its own") {
  const TwoJobs jobs;
  REQUIRE(jobs.two->refresh().size() == 1);
  jobs.one->note_ranks(JobRegistry::Ranks::gone);
  CHECK(jobs.two->refresh().empty());
  const FileIdentity written = save("{}");
  jobs.one->about_to_write(written.sha256);
  jobs.one->has_written(written);
  CHECK(jobs.two->refresh().empty());
  CHECK(jobs.two->find_writer(written) == "job launch-1 on here");
  jobs.one->note_ranks(JobRegistry::Ranks::live);  // started again under the same launch id
  CHECK(jobs.two->refresh() == Names{"job launch-1 on here"});
}

TEST_CASE("an earlier hub of the same launch is not another job") {
  const Registry fixture;
  const auto one = fixture.job("launch-1");
  const auto again = fixture.job("launch-1");
  CHECK(one->refresh().empty());
}

TEST_CASE("a removed file is made again and the jobs see each other again") {
  const TwoJobs jobs;
  fs::remove(jobs.file);
  CHECK(jobs.two->refresh().empty());
  CHECK(jobs.one->refresh() == Names{"job launch-2 on here"});
  CHECK(jobs.two->refresh() == Names{"job launch-1 on here"});
}

TEST_CASE("a write is attributed to its job before and after it and a later save to the user") {
  const TwoJobs jobs;
  const FileIdentity written = save("{}");
  CHECK_FALSE(jobs.two->find_writer(written));
  jobs.one->about_to_write(written.sha256);
  CHECK(jobs.two->find_writer(written) == "job launch-1 on here");
  CHECK_FALSE(jobs.two->find_writer(save("{ }")));
  jobs.one->has_written(written);
  CHECK(jobs.two->find_writer(written) == "job launch-1 on here");
  FileIdentity same_bytes = written;
  same_bytes.mtime_ns += 4'000'000;
  CHECK_FALSE(jobs.two->find_writer(same_bytes));
  CHECK_FALSE(jobs.one->find_writer(written));
}

TEST_CASE("a save of announced bytes is the user's if it comes much later") {
  const TwoJobs jobs;
  FileIdentity late = save("{}");
  jobs.one->about_to_write(late.sha256);
  late.mtime_ns += 60'000'000'000;
  CHECK_FALSE(jobs.two->find_writer(late));
}

// How a job deals with a file that was planted in the registry's place.
struct Outcome {
  bool shows_no_job;
  bool leaves_it_alone;
};

Outcome with_planted(const std::function<void(const fs::path&)>& plant) {
  const Registry fixture;
  plant(fixture.file);
  struct stat before {};
  REQUIRE(stat(fixture.file.c_str(), &before) == 0);
  bool shows_no_job = false;
  {
    JobRegistry job(fixture.file, {"launch-1", "", "here"});
    shows_no_job = job.refresh().empty() && !job.find_writer(save("{}"));
  }
  struct stat after {};
  const bool is_there = stat(fixture.file.c_str(), &after) == 0 && after.st_ino == before.st_ino;
  const bool is_unchanged = after.st_size == before.st_size &&
                            after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
                            after.st_mtim.tv_nsec == before.st_mtim.tv_nsec;
  return {shows_no_job, is_there && is_unchanged};
}

TEST_CASE("a planted file shows no other job and is left alone unless it could be a registry") {
  const auto check_left_alone = [](const std::function<void(const fs::path&)>& plant) {
    const Outcome outcome = with_planted(plant);
    CHECK(outcome.shows_no_job);
    CHECK(outcome.leaves_it_alone);
  };
  check_left_alone([](const fs::path& file) { fs::create_symlink("/dev/zero", file); });
  check_left_alone([](const fs::path& file) {
    write_text(file.parent_path() / "mine", "mine");
    fs::create_symlink("mine", file);
  });
  check_left_alone([](const fs::path& file) { REQUIRE(mkfifo(file.c_str(), 0666) == 0); });
  check_left_alone([](const fs::path& file) { fs::create_directory(file); });
  check_left_alone([](const fs::path& file) { write_text(file, std::string(1 << 20, 'x')); });
  CHECK(with_planted([](const fs::path& file) { write_text(file, std::string(5000, '{')); }).shows_no_job);
}

constexpr char kOn[] = "{\n  \"dynamic_on\": true\n}\n";
constexpr char kOff[] = "{\n  \"dynamic_on\": false\n}\n";

FileIdentity identity_of(const fs::path& path) {
  const auto read = read_file(path);
  REQUIRE(read);
  return read->content.identity;
}

// A ConfigService of a config that is on. The test takes its results from the mailbox, as the hub's thread
// does.
struct ConfigServiceFixture {
  const TemporaryDirectory directory;
  const fs::path path = directory / "config.json";
  const fs::path output = directory / "out";
  const fs::path note_path = output / ".gradmon" / "writeback.json";
  const WriteBackNote note{output, path};
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::vector<std::string> reports;  // contents and problems, in order
  DiskThread disk;
  ConfigService service{{path, output, {"launch", "", "host"}}, disk, mailbox};

  ConfigServiceFixture() { write_text(path, kOn); }
  void watch() {
    service.watch({[this](const ConfigService::Content& content, const std::string&) {
                     reports.push_back(content ? content->text : "(problem) " + content.error());
                   },
                   [](const auto&, const auto&) {}});
  }
  bool until(const std::function<bool()>& condition) {
    return eventually([&] {
      for (const auto& job : mailbox->take()) job();
      return condition();
    });
  }
  std::string first() {
    watch();
    return until([&] { return !reports.empty(); }) ? reports.front() : "(nothing)";
  }
};

}  // namespace

TEST_CASE("a write-back that the last job left undone is done before the first report") {
  ConfigServiceFixture f;
  REQUIRE(f.note.write(identity_of(f.path)));
  CHECK(f.first() == kOff);
  CHECK(read_text(f.path) == kOff);
  CHECK_FALSE(fs::exists(f.note_path));
}

TEST_CASE("a note of an older save changes nothing and is removed") {
  ConfigServiceFixture f;
  REQUIRE(f.note.write(identity_of(f.path)));
  fs::last_write_time(f.path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto saved_again = identity_of(f.path);
  CHECK(f.first() == kOn);
  CHECK(identity_of(f.path) == saved_again);
  CHECK_FALSE(fs::exists(f.note_path));
}

TEST_CASE("a note of another config file is left alone") {
  ConfigServiceFixture f;
  REQUIRE(WriteBackNote(f.output, f.directory / "other.json").write(identity_of(f.path)));
  CHECK(f.first() == kOn);
  CHECK(fs::exists(f.note_path));
}

TEST_CASE("a note that is cut short or invalid is ignored") {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"config": 1})", R"({"config": "/c", "mtime_ns": "x", "size": -1})"}) {
    ConfigServiceFixture f;
    fs::create_directories(f.note_path.parent_path());
    write_text(f.note_path, text);
    CAPTURE(text);
    CHECK(f.first() == kOn);
  }
}

// Checks that a valid note is ignored, without waiting, once `replace` has changed its file.
void check_not_trusted(const std::function<void(const fs::path& note)>& replace) {
  ConfigServiceFixture f;
  REQUIRE(f.note.write(identity_of(f.path)));
  replace(f.note_path);
  CHECK_FALSE(f.note.read());
  CHECK(f.first() == kOn);
  CHECK(read_text(f.path) == kOn);
}

TEST_CASE("a note that another user could have written or put there is ignored at once") {
  check_not_trusted([](const fs::path& note) {
    fs::rename(note, note.string() + ".aside");
    fs::create_symlink(note.string() + ".aside", note);
  });
  check_not_trusted([](const fs::path& note) {
    REQUIRE(fs::remove(note));
    REQUIRE(::mkfifo(note.c_str(), 0600) == 0);
  });
  check_not_trusted([](const fs::path& note) { REQUIRE(::chmod(note.c_str(), 0666) == 0); });
  check_not_trusted([](const fs::path& note) { fs::resize_file(note, std::uintmax_t{1} << 30U); });
}

TEST_CASE("a file that has become read-only is reported as it is and its note is removed") {
  ConfigServiceFixture f;
  REQUIRE(f.note.write(identity_of(f.path)));
  REQUIRE(::chmod(f.path.c_str(), 0444) == 0);
  CHECK(f.first() == kOn);
  CHECK(read_text(f.path) == kOn);
  CHECK_FALSE(fs::exists(f.note_path));
}

TEST_CASE("a note is read back unchanged and a newer note replaces it") {
  const TemporaryDirectory directory;
  const WriteBackNote note(directory / "new" / "out", directory / "c.json");
  CHECK_FALSE(note.read());
  const FileIdentity one{-5, 7, std::string(64, 'a')};
  const FileIdentity two{1'800'000'000'123'456'789, 1, std::string(64, 'b')};
  REQUIRE(note.write(one));
  CHECK(note.read() == one);
  REQUIRE(note.write(two));
  CHECK(note.read() == two);
  note.remove();
  CHECK_FALSE(note.read());
}

TEST_CASE("a write-back leaves no note and changes only the save that it is for") {
  ConfigServiceFixture f;
  REQUIRE(f.first() == kOn);
  std::optional<ConfigService::Edited> edited;
  const auto write_back = [&](const FileIdentity& save) {
    edited.reset();
    f.service.write_back(save, [&](ConfigService::Edited done) { edited = std::move(done); });
    REQUIRE(f.until([&] { return edited.has_value(); }));
  };
  write_back({1, 2, "another"});
  CHECK(edited->error().kind == EditError::Kind::changed);
  CHECK(read_text(f.path) == kOn);
  CHECK_FALSE(fs::exists(f.note_path));
  write_back(identity_of(f.path));
  CHECK(edited->value().text == kOff);
  CHECK(read_text(f.path) == kOff);
  CHECK_FALSE(fs::exists(f.note_path));
}

TEST_CASE("a save by another job is reported with its name and a save by the user without") {
  ConfigServiceFixture f;
  std::vector<std::string> writers;
  DiskThread disk;
  ConfigService other({f.path, f.output, {"second", "", "host"}}, disk, f.mailbox);
  std::vector<std::string> others;
  other.watch({[&](const ConfigService::Content&, const std::string& writer) { writers.push_back(writer); },
               [&](std::vector<std::string> jobs, const auto&) { others = std::move(jobs); }});
  REQUIRE(f.first() == kOn);
  REQUIRE(f.until(
      [&] { return writers.size() == 1 && others == std::vector<std::string>{"job launch on host"}; }));
  f.service.write_back(identity_of(f.path), [](const ConfigService::Edited&) {});
  REQUIRE(f.until([&] { return writers.size() == 2; }));
  write_text(f.path, kOn);
  REQUIRE(f.until([&] { return writers.size() == 3; }));
  CHECK(writers == std::vector<std::string>{"", "job launch on host", ""});
}

TEST_CASE("a write-back is made even if the output directory cannot be made") {
  ConfigServiceFixture f;
  write_text(f.output, "in the way");
  REQUIRE(f.first() == kOn);
  std::optional<ConfigService::Edited> edited;
  f.service.write_back(identity_of(f.path), [&](ConfigService::Edited done) { edited = std::move(done); });
  REQUIRE(f.until([&] { return edited.has_value(); }));
  CHECK(edited->has_value());
  CHECK(read_text(f.path) == kOff);
}

TEST_CASE("the disk thread releases the file when it ends and not the destructor of the service") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "config.json";
  write_text(path, kOn);
  const auto files = [&] {
    return std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator());
  };
  const auto mailbox = std::make_shared<Mailbox>();
  auto disk = std::make_unique<DiskThread>();
  ConfigService service({path, directory.path(), {"launch", "", "host"}}, *disk, mailbox);
  bool edited = false;
  service.watch({[](const ConfigService::Content&, const std::string&) {}, [](const auto&, const auto&) {}});
  service.edit({{"dynamic_on", "false"}},
               [&](const ConfigService::Edited& done) { edited = done.has_value(); });
  REQUIRE(eventually([&] {
    for (const auto& job : mailbox->take()) job();
    return edited;
  }));
  REQUIRE(files() >= 2);  // the config, the job registry and for 2 s the displaced file
  disk.reset();
  CHECK(eventually([&] { return files() == 1; }));
}

TEST_CASE("an edit of a file that is not watched is refused") {
  ConfigServiceFixture f;
  std::optional<ConfigService::Edited> edited;
  f.service.edit({{"dynamic_on", "false"}}, [&](ConfigService::Edited done) { edited = std::move(done); });
  REQUIRE(f.until([&] { return edited.has_value(); }));
  CHECK(edited->error().kind == EditError::Kind::unwritable);
  CHECK(read_text(f.path) == kOn);
}

}  // namespace gradmon
