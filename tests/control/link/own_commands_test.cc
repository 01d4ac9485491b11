// SPDX-License-Identifier: Apache-2.0
#include "control/link/own_commands.h"

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

TEST_CASE("a command is asked each second until it is answered") {
  OwnCommands own;
  const OwnCommands::Clock::time_point start{seconds(1'000)};
  own.add(command("a"));
  own.add(command("b"));
  CHECK(own.due(start).size() == 2);
  CHECK(own.due(start + std::chrono::milliseconds(999)).empty());
  own.answered("a", CommandReply{});
  own.answered("unknown", CommandReply{});
  const auto again = own.due(start + seconds(1));
  REQUIRE(again.size() == 1);
  CHECK(again[0].request_id == "b");
  own.answered("b", CommandReply{});
  CHECK(own.empty());
}

TEST_CASE("what nobody answers within a minute is dropped, and of many the oldest") {
  OwnCommands own;
  const OwnCommands::Clock::time_point start{seconds(1'000)};
  for (int i = 0; i < 150; ++i) own.add(command(std::to_string(i)));
  const auto due = own.due(start);
  REQUIRE(due.size() == 100);
  CHECK(due.front().request_id == "50");
  CHECK(own.due(start + seconds(60)).size() == 100);
  CHECK(own.due(start + seconds(61)).empty());
  CHECK(own.empty());
}

}  // namespace
}  // namespace gradmon
