// SPDX-License-Identifier: Apache-2.0
// The recipe of CONTRIBUTING.md for a figure that a rank reports. add_figure has followed it: this test, the
// agreement, the messages and the text of status are compiled with the files that it has changed.
#include "control/agree/coordinator.h"
#include "control/wire/messages.h"
#include "tests/support/catch.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

// As it arrives at the other end.
template <typename Value>
Value sent(const Value& value) {
  return std::get<Value>(decode_frame(encode(Frame(value))).value());
}

TEST_CASE("a figure added by the recipe goes from a rank's report to gradmonctl status --json") {
  NullDecisionLog log;
  Coordinator coordinator({"epoch", "run", 100, "launch"}, log);
  coordinator.begin(nullptr, 100);
  const auto hear = [&](const Envelope& envelope) {
    for (const Envelope& heard : to_envelopes(sent(Bundles{to_bundle(envelope)}).front()))
      coordinator.receive(heard, 200);
  };
  Hello hello;
  hello.launch_id = "launch";
  hello.process_id = "rank";
  hear({"", Rank{0}, 0, hello});
  Progress progress;
  progress.added = 41;
  hear({"epoch", Rank{0}, coordinator.membership().of(0).incarnation, progress});
  const Status shown = sent(coordinator.status());
  REQUIRE(shown.ranks.size() == 1);
  CHECK(shown.ranks.front().added == 41);
  CHECK(status_json(shown, JsonLayout::one_line).find("\"added\":41") != std::string::npos);
}

}  // namespace
}  // namespace gradmon
