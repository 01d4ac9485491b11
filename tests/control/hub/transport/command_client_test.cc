// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/command_client.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "control/host/job_directory.h"
#include "tests/support/catch.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_hub.h"

namespace gradmon {
namespace {

constexpr uid_t kOtherUser = 65'534;

// This process acts as another user until the destructor; needs root.
class AsOtherUser {
 public:
  AsOtherUser() { REQUIRE(seteuid(kOtherUser) == 0); }
  ~AsOtherUser() {
    if (seteuid(0) != 0) std::abort();
  }
  AsOtherUser(const AsOtherUser&) = delete;
  AsOtherUser& operator=(const AsOtherUser&) = delete;
};

bool may_change_user() {
  if (geteuid() == 0) return true;
  WARN("skipped: needs root, to become another user");
  return false;
}

std::string denial_to_other_user(const fs::path& path, Access access) {
  const AsOtherUser other;
  return access_denial(path, access);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("a missing path and a readable path give no denial") {
  CHECK(access_denial("/no/such/path", Access::read).empty());
  const TemporaryDirectory directory;
  CHECK(access_denial(directory.path(), Access::read).empty());
  write_text(directory / "file", "");
  CHECK(access_denial(directory / "file", Access::read).empty());
}

TEST_CASE("the denial of a path in a closed directory names that directory and its owner and mode") {
  if (!may_change_user()) return;
  const TemporaryDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0700) == 0);
  const fs::path path = directory / "in/file";  // Nobody else can see whether it exists.
  const std::string denial = denial_to_other_user(path, Access::read);
  CHECK(denial.find(path.string() + ": permission denied to ") == 0);
  CHECK(has(denial, "uid 65534"));
  CHECK(has(denial, ": " + directory.path().string() + " belongs to root (uid 0) and has mode 0700: "));
  CHECK(has(denial, ": run gradmonctl as root, or ask root for access"));
}

TEST_CASE("a file can be readable and deny a connection") {
  if (!may_change_user()) return;
  const TemporaryDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
  const fs::path file = directory / "file";
  write_text(file, "");
  REQUIRE(chmod(file.c_str(), 0644) == 0);
  CHECK(denial_to_other_user(file, Access::read).empty());
  CHECK(has(denial_to_other_user(file, Access::connect), ": it belongs to root (uid 0) and has mode 0644: "));
}

TEST_CASE("the owner of a path that denies access is told how to regain it") {
  if (!may_change_user()) return;
  const TemporaryDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
  const fs::path file = directory / "file";
  write_text(file, "");
  REQUIRE(chown(file.c_str(), kOtherUser, static_cast<gid_t>(-1)) == 0);
  REQUIRE(chmod(file.c_str(), 0000) == 0);
  const std::string denial = denial_to_other_user(file, Access::read);
  CHECK(has(denial, " and has mode 0000: to regain access: chmod u+rwX " + file.string()));
}

Status status_of(const std::string& launch_id) {
  Status status;
  status.launch_id = launch_id;
  return status;
}

TEST_CASE("query_all_hubs finds a hub whose socket is missing for a moment") {
  const TemporaryDirectory runtime;
  REQUIRE(chmod(runtime.path().c_str(), 0700) == 0);
  const ScopedVariable variable("XDG_RUNTIME_DIR", runtime.path().c_str());
  const FakeHub first(runtime.path(), status_of("first"));
  REQUIRE(make_job_directory("second"));  // of a hub that is about to bind its socket again
  std::unique_ptr<FakeHub> second;
  const auto replies = query_all_hubs([&](const Status& status) {
    // The first hub's reply comes after the first try to connect to the second.
    if (status.launch_id == "first") second = std::make_unique<FakeHub>(runtime.path(), status_of("second"));
    return status.launch_id == "second";
  });
  bool heard = false;
  for (const HubReplies::Answer& answer : replies.answers)
    heard = heard || answer.status.launch_id == "second";
  CHECK(heard);
}

TEST_CASE("query_all_hubs says why a hub gives no status, and asks it again first") {
  const TemporaryDirectory runtime;
  REQUIRE(chmod(runtime.path().c_str(), 0700) == 0);
  const ScopedVariable variable("XDG_RUNTIME_DIR", runtime.path().c_str());
  const FakeHub hub(runtime.path(), status_of("far"), "the lead hub of far is not found yet");
  const auto replies = query_all_hubs([](const Status&) { return false; });
  // Hubs of other tests may be found, too.
  CHECK(std::none_of(replies.answers.begin(), replies.answers.end(),
                     [](const HubReplies::Answer& answer) { return answer.status.launch_id == "far"; }));
  const auto has_reason = [](const std::string& line) {
    return line.find(": the lead hub of far is not found yet") != std::string::npos;
  };
  CHECK(std::count_if(replies.unresponsive.begin(), replies.unresponsive.end(), has_reason) == 1);
  CHECK(hub.asked().size() > 1);
}

}  // namespace

}  // namespace gradmon
