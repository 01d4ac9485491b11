// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/command_client.h"

#include <sys/stat.h>

#include <algorithm>

#include "control/host/job_directory.h"
#include "tests/support/catch.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_hub.h"

namespace gradmon {
namespace {

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
