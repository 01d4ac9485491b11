// SPDX-License-Identifier: Apache-2.0
#include "control/link/pending_commands.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::seconds;

Command command(const std::string& id) {
  Command made;
  made.request_id = id;
  return made;
}

TEST_CASE("a command is sent every second until it is answered") {
  PendingCommands own;
  const PendingCommands::Clock::time_point start{seconds(1'000)};
  own.add(command("a"), start);
  own.add(command("b"), start);
  CHECK(own.due(start).size() == 2);
  CHECK(own.due(start + std::chrono::milliseconds(999)).empty());
  own.answered("a", CommandReply{});
  own.answered("unknown", CommandReply{});
  const auto again = own.due(start + seconds(1));
  REQUIRE(again.size() == 1);
  CHECK(again[0].request_id == "b");
  own.answered("b", CommandReply{});
  CHECK(own.due(start + seconds(2)).empty());
}

TEST_CASE("a command without an answer is dropped after a minute and the oldest of more than 100 at once") {
  PendingCommands own;
  const PendingCommands::Clock::time_point start{seconds(1'000)};
  for (int i = 0; i < 150; ++i) own.add(command(std::to_string(i)), start);
  const auto due = own.due(start);
  REQUIRE(due.size() == 100);
  CHECK(due.front().request_id == "50");
  own.drop_expired(start + seconds(60));
  CHECK(own.due(start + seconds(60)).size() == 100);
  own.drop_expired(start + seconds(61));
  CHECK(own.due(start + seconds(61)).empty());
}

TEST_CASE("a command that was never sent is dropped a minute after it was added") {
  PendingCommands own;
  const PendingCommands::Clock::time_point start{seconds(1'000)};
  own.add(command("a"), start);
  own.add(command("b"), start + seconds(30));
  own.drop_expired(start + seconds(61));
  const auto due = own.due(start + seconds(61));
  REQUIRE(due.size() == 1);
  CHECK(due[0].request_id == "b");
}

}  // namespace
}  // namespace gradmon
