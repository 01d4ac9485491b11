// SPDX-License-Identifier: Apache-2.0
#include "control/link/background_call.h"

#include <stdexcept>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using Call = BackgroundCall<int>;

Call::Outcome outcome_of(std::function<Call::Outcome()> work) {
  Call call;
  call.begin(std::move(work));
  std::optional<Call::Outcome> outcome;
  REQUIRE(eventually([&] {
    outcome = call.poll();
    return outcome.has_value();
  }));
  CHECK_FALSE(call.under_way());
  return *outcome;
}

TEST_CASE("poll returns the answer of a call") {
  CHECK(outcome_of([] { return 7; }) == 7);
}

TEST_CASE("an exception of a call becomes an error") {
  CHECK(outcome_of([]() -> Call::Outcome { throw std::runtime_error("no store"); }).error() == "no store");
  CHECK(outcome_of([]() -> Call::Outcome { throw 1; }).error() == "unknown exception");
}

}  // namespace
}  // namespace gradmon
