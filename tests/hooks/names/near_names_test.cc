// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/near_names.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("modules and parameters are offered and the closest comes first") {
  const std::vector<TargetName> names{{0, "module.decoder.fc1.weight"}, {1, "module.decoder.fc2.weight"}};
  CHECK(near_names("decodr.fc2", names) == std::vector<std::string>{"decoder.fc2", "decoder.fc1"});
  CHECK(near_names("decodr", names) == std::vector<std::string>{"decoder"});
  CHECK(near_names("something else", names).empty());
  CHECK(near_names("", {}).empty());
}

}  // namespace
}  // namespace gradmon
