// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_host.h"

#include <unistd.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Level = Finding::Level;

TEST_CASE("reached limits of inotify and descriptors are warnings") {
  CHECK(examine_inotify({128, 1000, 3, 5}).level == Level::ok);
  CHECK(examine_inotify({128, 1000, 128, 200}).level == Level::warn);
  CHECK(examine_inotify({128, 1000, 3, 995}).level == Level::warn);
  CHECK(examine_descriptors("rank 0", {1024, 4096, 100}).level == Level::ok);
  const Finding full = examine_descriptors("rank 0", {1024, 4096, 1010});
  CHECK(full.level == Level::warn);
  CHECK(full.check == "descriptors of rank 0");
  CHECK(full.text == "1010 of 1024 are open (hard limit 4096)");
}

TEST_CASE("descriptors are counted for a live process only") {
  const auto own = descriptor_use(getpid());
  REQUIRE(own);
  CHECK(own->open >= 3);
  CHECK(own->soft > own->open);
  CHECK_FALSE(descriptor_use(0x7fffffff));
}

}  // namespace
}  // namespace gradmon
