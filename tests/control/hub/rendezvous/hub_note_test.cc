// SPDX-License-Identifier: Apache-2.0
#include "control/hub/rendezvous/hub_note.h"

#include <sys/stat.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "control/hub/rendezvous/job_entry.h"
#include "control/hub/rendezvous/local_address.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

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
  if (geteuid() != 0) {
    WARN("skipped: only root can make another user's note");
    return;
  }
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
