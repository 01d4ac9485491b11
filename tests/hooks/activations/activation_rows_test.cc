// SPDX-License-Identifier: Apache-2.0
#include "hooks/activations/activation_rows.h"

#include <ATen/ops/ones.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

ActivationRows::Row row(const std::string& name) { return {Kind::actv, 0, name, 0, {}}; }

TEST_CASE("a step has at most that many rows of activations and the next one begins anew") {
  HookFuse fuse;
  ActivationRows rows(1e-8, ReuseReadings::no, fuse, 2);
  for (int step = 0; step < 2; ++step) {
    rows.begin_step();
    for (const char* name : {"a", "b", "c"}) rows.add(row(name), at::ones({2}));
    rows.end_step();
    const auto taken = rows.take_rows();
    REQUIRE(taken.size() == 2);
    CHECK(taken[1].name == "b");
  }
  CHECK(!fuse.tripped());
}

}  // namespace
}  // namespace gradmon
