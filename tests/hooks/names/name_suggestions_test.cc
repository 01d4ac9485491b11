// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/name_suggestions.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("modules and parameters are suggested and the closest comes first") {
  const std::vector<TargetName> names{{0, "module.decoder.fc1.weight"}, {1, "module.decoder.fc2.weight"}};
  CHECK(name_suggestions("decodr.fc2", names) == std::vector<std::string>{"decoder.fc2", "decoder.fc1"});
  CHECK(name_suggestions("decodr", names) == std::vector<std::string>{"decoder"});
  CHECK(name_suggestions("something else", names).empty());
  CHECK(name_suggestions("", {}).empty());
}

}  // namespace
}  // namespace gradmon
