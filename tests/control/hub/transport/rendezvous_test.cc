// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/rendezvous.h"

#include <unistd.h>

#include <thread>

#include "control/host/job_directory.h"
#include "control/host/unix_stream.h"
#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

JobEntry job(std::string launch, std::string epoch = "e") {
  JobEntry job;
  job.epoch = std::move(epoch);
  job.launch_id = std::move(launch);
  job.name = "a \"name\"\n";
  job.host = "here";
  job.endpoint = "ipc:///nowhere";
  job.address = "tcp://10.0.0.1:5";
  job.started = 1'234;
  job.trouble = "none";
  return job;
}

struct Output {
  TemporaryDirectory directory;

  const fs::path& path() const { return directory.path(); }
  fs::path jobs() const { return path() / ".gradmon" / "jobs"; }
  fs::path file(const std::string& launch) const { return jobs() / (job_file_name(launch) + ".json"); }
  // Writes the entry of this launch.
  void write_job(const std::string& launch) const { REQUIRE(write_entry(path(), job(launch))); }
};

std::vector<std::string> launches(const Output& out) {
  std::vector<std::string> ids;
  for (const JobEntry& entry : read_entries(out.path())) ids.push_back(entry.launch_id);
  return ids;
}

TEST_CASE("without a directory there are no jobs") {
  const Output out;
  CHECK(read_entries(out.path()).empty());
  CHECK_FALSE(find_entry(out.path(), "a"));
  CHECK(read_entries(out.path() / "missing").empty());
}

TEST_CASE("a job is found until it is removed") {
  const Output out;
  const std::string launch = "launch \"1\"\n/../x";
  REQUIRE(write_entry(out.path() / "new/deeper", job(launch)));
  const auto found = find_entry(out.path() / "new/deeper", launch);
  REQUIRE(found);
  CHECK(found->launch_id == launch);
  CHECK(found->epoch == "e");
  CHECK(found->name == "a \"name\"\n");
  CHECK(found->host == "here");
  CHECK(found->endpoint == "ipc:///nowhere");
  CHECK(found->address == "tcp://10.0.0.1:5");
  CHECK(found->started == 1'234);
  CHECK(found->trouble == "none");
  CHECK(read_entries(out.path() / "new/deeper").size() == 1);
  remove_entry(out.path() / "new/deeper", job(launch));
  CHECK(read_entries(out.path() / "new/deeper").empty());
}

TEST_CASE("only its owner can write an entry whatever the umask") {
  const Output out;
  const mode_t before = umask(0);
  out.write_job("a");
  umask(before);
  CHECK((mode_of(out.file("a")) & 0022U) == 0);
  CHECK(find_entry(out.path(), "a"));
}

TEST_CASE("jobs with one output directory do not disturb each other") {
  const Output out;
  std::vector<std::thread> jobs;
  for (int i = 0; i < 8; ++i) {
    jobs.emplace_back([&, i] {
      for (int turn = 0; turn < 50; ++turn) {
        static_cast<void>(write_entry(out.path(), job(std::to_string(i), std::to_string(turn))));
      }
    });
  }
  for (std::thread& each : jobs) each.join();
  CHECK(read_entries(out.path()).size() == 8);
  for (int i = 0; i < 8; ++i) CHECK(find_entry(out.path(), std::to_string(i))->epoch == "49");
  remove_entry(out.path(), job("3", "49"));
  CHECK(read_entries(out.path()).size() == 7);
  CHECK(std::distance(fs::directory_iterator(out.jobs()), fs::directory_iterator()) ==
        7);  // nothing half-made
}

TEST_CASE("the entry of a later epoch is not removed") {
  const Output out;
  REQUIRE(write_entry(out.path(), job("a", "old")));
  REQUIRE(write_entry(out.path(), job("a", "new")));
  remove_entry(out.path(), job("a", "old"));
  CHECK(find_entry(out.path(), "a")->epoch == "new");
}

TEST_CASE("an unchanged entry is not written again and a removed one is") {
  const Output out;
  out.write_job("a");
  struct stat before {};
  REQUIRE(stat(out.file("a").c_str(), &before) == 0);
  out.write_job("a");
  struct stat after {};
  REQUIRE(stat(out.file("a").c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  fs::remove_all(out.path() / ".gradmon");
  out.write_job("a");
  CHECK(find_entry(out.path(), "a"));
}

TEST_CASE("an entry that its hub does not touch any more is left out until it is touched again") {
  const Output out;
  out.write_job("ended");
  out.write_job("running");
  const auto age = [&](std::chrono::seconds by) {
    fs::last_write_time(out.file("ended"), fs::file_time_type::clock::now() - by);
  };
  age(std::chrono::seconds(25));
  CHECK(launches(out).size() == 2);
  age(std::chrono::seconds(31));
  CHECK(launches(out) == std::vector<std::string>{"running"});
  CHECK(read_entries(out.path(), std::chrono::hours(1)).size() == 2);
  CHECK(find_entry(out.path(), "ended"));
  fs::remove(out.file("running"));
  CHECK(launches(out).empty());
  CHECK(fs::exists(out.file("ended")));
  out.write_job("ended");
  CHECK(launches(out).size() == 1);
}

TEST_CASE("the entries of ended jobs are removed after a week") {
  const Output out;
  for (const int days : {0, 6, 8}) {
    out.write_job(std::to_string(days));
    fs::last_write_time(out.file(std::to_string(days)),
                        fs::file_time_type::clock::now() - std::chrono::hours(days * 24));
  }
  CHECK(remove_old_entries(out.path()) == std::vector<std::string>{"8"});
  CHECK(find_entry(out.path(), "6"));
  CHECK_FALSE(find_entry(out.path(), "8"));
  CHECK(remove_old_entries(out.path() / "missing").empty());
}

TEST_CASE("an entry of another launch under the name of this launch is ignored") {
  const Output out;
  out.write_job("a");
  fs::copy_file(out.file("a"), out.file("b"));
  CHECK_FALSE(find_entry(out.path(), "b"));
}

// Checks that the file that `put_file` puts in the place of an entry is ignored, and the valid entry beside
// it is not. In time: opening a FIFO would wait for a writer, and reading /dev/zero would not end.
void check_ignored(const std::function<void(const Output&, const fs::path&)>& put_file) {
  const Output out;
  out.write_job("good");
  put_file(out, out.file("bad"));
  const auto begun = std::chrono::steady_clock::now();
  CHECK_FALSE(find_entry(out.path(), "bad"));
  CHECK(launches(out) == std::vector<std::string>{"good"});
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(10));
}

// A valid entry of the launch "bad", outside the directory of entries.
fs::path valid_entry_file(const Output& out) {
  const Output other;
  other.write_job("bad");
  const fs::path aside = out.path() / "aside.json";
  fs::copy_file(other.file("bad"), aside);
  return aside;
}

TEST_CASE("a file that is no regular file of this user alone is ignored at once") {
  using Put = std::function<void(const Output&, const fs::path&)>;
  const auto changed = [](const std::function<bool(const fs::path&)>& change) {
    return Put([change](const Output& out, const fs::path& at) {
      fs::rename(valid_entry_file(out), at);
      REQUIRE(change(at));
    });
  };
  const auto of_mode = [&](mode_t mode) {
    return changed([mode](const fs::path& at) { return chmod(at.c_str(), mode) == 0; });
  };
  const auto link_to = [](const fs::path& target) {
    return Put([target](const Output&, const fs::path& at) { fs::create_symlink(target, at); });
  };
  const std::vector<std::pair<std::string, Put>> cases{
      {"a link to a valid entry",
       [](const Output& out, const fs::path& at) { fs::create_symlink(valid_entry_file(out), at); }},
      {"a link to /dev/zero", link_to("/dev/zero")},
      {"a link to nothing", link_to("/nowhere")},
      {"a link to itself", [](const Output&, const fs::path& at) { fs::create_symlink(at, at); }},
      {"a pipe", [](const Output&, const fs::path& at) { REQUIRE(mkfifo(at.c_str(), 0600) == 0); }},
      {"a directory", [](const Output&, const fs::path& at) { fs::create_directory(at); }},
      {"a socket", [](const Output&, const fs::path& at) { close(bind_unix(at).value()); }},
      {"mode 0664", of_mode(0664)},
      {"mode 0646", of_mode(0646)},
      {"mode 0666", of_mode(0666)},
      {"a sparse file of 1 GiB",
       changed([](const fs::path& at) { return truncate(at.c_str(), off_t{1} << 30) == 0; })}};
  for (const auto& [name, put_file] : cases) {
    INFO(name);
    check_ignored(put_file);
  }
  if (geteuid() != 0) WARN("skipped: only root can make another user's entry");
  if (geteuid() == 0)
    check_ignored(changed([](const fs::path& at) { return chown(at.c_str(), 65'534, 65'534) == 0; }));
}

TEST_CASE("an entry that is not JSON, has no valid launch id or is longer than 64 KiB is ignored") {
  const Output out;
  std::string longer = read_text(valid_entry_file(out));
  longer.resize(64 * 1024 + 1, ' ');  // still valid JSON
  for (const std::string& text :
       {longer, std::string(), std::string("{"), std::string("[]"), std::string("7"),
        std::string(60'000, '['), std::string("{\"launch_id\": 7, \"endpoint\": []}"),
        std::string("{\"launch_id\": \"bad\xff\"}"), std::string("{\"started\": 1e400}"),
        std::string("\0\0\0", 3)}) {
    CAPTURE(text.substr(0, 40));
    check_ignored([&](const Output&, const fs::path& at) {
      write_text(at, text);
      REQUIRE(chmod(at.c_str(), 0644) == 0);
    });
  }
}

TEST_CASE("a field of the wrong type reads as the empty value") {
  const Output out;
  out.write_job("a");
  write_text(out.file("a"),
             R"({"launch_id": "a", "endpoint": "x", "started": 1e30, "host": null, "epoch": {}})");
  const auto found = find_entry(out.path(), "a");
  REQUIRE(found);
  CHECK(found->started == 0);
  CHECK(found->host.empty());
  CHECK(found->epoch.empty());
}

TEST_CASE("a link in the place of an entry is replaced by the entry") {
  const Output out;
  out.write_job("a");
  fs::remove(out.file("a"));
  fs::create_symlink(out.path() / "elsewhere", out.file("a"));
  out.write_job("a");
  CHECK(find_entry(out.path(), "a"));
  CHECK_FALSE(fs::exists(out.path() / "elsewhere"));
}

TEST_CASE("an output directory that cannot be written is an error and nothing is changed") {
  const Output out;
  write_text(out.path() / ".gradmon", "in the way");
  CHECK_FALSE(write_entry(out.path(), job("a")));
  CHECK(read_text(out.path() / ".gradmon") == "in the way");
  remove_entry(out.path(), job("a"));
  CHECK(read_entries(out.path()).empty());
}

TEST_CASE("at most a thousand entries are read") {
  const Output out;
  for (int i = 0; i < 1'200; ++i) {
    fs::create_directories(out.jobs());
    write_text(out.jobs() / (std::to_string(i) + ".json"),
               R"({"launch_id": ")" + std::to_string(i) + R"(", "endpoint": "x"})");
  }
  CHECK(read_entries(out.path(), std::chrono::hours(1)).size() == 1'000);
  out.write_job("mine");
  CHECK(find_entry(out.path(), "mine"));
}

fs::path only_file(const fs::path& output) {
  return fs::directory_iterator(output / ".gradmon" / "jobs")->path();
}

TEST_CASE("a hub's note is read once and is not a job entry") {
  const TemporaryDirectory output;
  const HubNote note{"launch", "host \"1\"", "key"};
  REQUIRE(write_note(output.path(), note));
  REQUIRE(write_note(output.path(), {"launch", "host", "other"}));
  REQUIRE(write_note(output.path(), {"launch2", "host", "foreign"}));
  std::set<std::string> seen;
  const auto notes = read_new_notes(output.path(), "launch", seen);
  REQUIRE(notes.size() == 2);
  for (const HubNote& each : notes) CHECK((each.key == "key" || each.key == "other"));
  CHECK(read_new_notes(output.path(), "launch", seen).empty());
  CHECK(read_entries(output.path()).empty());
  remove_note(output.path(), note);
  remove_notes(output.path(), "launch2");
  seen.clear();
  CHECK(read_new_notes(output.path(), "launch", seen).size() == 1);
  CHECK(read_new_notes(output.path(), "launch2", seen).empty());
}

TEST_CASE("removing the notes of a job keeps those of a job whose name adds a dot and a suffix") {
  const TemporaryDirectory output;
  REQUIRE(write_note(output.path(), {"run", "host", "key"}));
  REQUIRE(write_note(output.path(), {"run.1", "host", "other"}));
  std::set<std::string> seen;
  CHECK(read_new_notes(output.path(), "run", seen).size() == 1);
  CHECK(seen.size() == 1);
  remove_notes(output.path(), "run");
  seen.clear();
  CHECK(read_new_notes(output.path(), "run", seen).empty());
  CHECK(read_new_notes(output.path(), "run.1", seen).size() == 1);
}

TEST_CASE("a note that others could have written is ignored") {
  const TemporaryDirectory output;
  REQUIRE(write_note(output.path(), {"launch", "host", "key"}));
  const fs::path file = only_file(output.path());
  const auto count = [&] {
    std::set<std::string> seen;
    return read_new_notes(output.path(), "launch", seen).size();
  };
  REQUIRE(count() == 1);
  chmod(file.c_str(), 0664);
  CHECK(count() == 0);
  chmod(file.c_str(), 0644);
  const fs::path elsewhere = output / "elsewhere";
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  CHECK(count() == 0);
  fs::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK(count() == 0);
  fs::remove(file);
  write_text(file, "{\"launch_id\": \"launch\", \"key\": 7}");
  CHECK(count() == 0);
  if (!is_root("make another user's note")) return;
  write_text(file, to_text(HubNote{"launch", "host", "key"}));
  chmod(file.c_str(), 0644);
  REQUIRE(count() == 1);
  REQUIRE(chown(file.c_str(), 12345, 12345) == 0);
  CHECK(count() == 0);
}

TEST_CASE("the address towards another host is never a loopback address") {
  for (const char* host : {"127.0.0.1", "localhost", "no-such-host.invalid", ""}) {
    const std::string own = local_address_towards(host);
    CHECK(own.rfind("127.", 0) != 0);
    CHECK(own != "::1");
  }
}

}  // namespace
}  // namespace gradmon
