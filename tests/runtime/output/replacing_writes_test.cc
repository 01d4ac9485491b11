// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/replacing_writes.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a write that is tried again after a later one does not put the older content back") {
  std::string file;
  bool disk_is_full = true;
  ReplacingWrites writes;
  const auto write_of = [&](const std::string& text) {
    return writes.next([&, text]() -> tl::expected<void, std::string> {
      if (disk_is_full) return tl::unexpected<std::string>("full");
      file = text;
      return {};
    });
  };
  const auto first = write_of("first");
  const auto second = write_of("second");
  CHECK_FALSE(first());
  CHECK_FALSE(second());
  disk_is_full = false;
  CHECK(first());
  CHECK(file == "first");
  CHECK(second());
  CHECK(file == "second");
  CHECK(first());
  CHECK(file == "second");
}

}  // namespace
}  // namespace gradmon
