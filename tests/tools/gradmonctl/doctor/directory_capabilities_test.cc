// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/directory_capabilities.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

TEST_CASE("probing a directory leaves no file in it") {
  TemporaryDirectory directory;
  const auto trial = probe_directory(directory.path());
  REQUIRE(trial);
  CHECK(trial->exchange);
  CHECK(std::filesystem::is_empty(directory.path()));
  CHECK(probe_directory("/proc").error().find("no file can be made in /proc: ") == 0);
}

TEST_CASE("file systems are recognised by name") {
  CHECK(file_system_of("/proc") == "proc");
  CHECK(file_system_of("/no/such/path").empty());
  CHECK(is_network_file_system("nfs"));
  CHECK_FALSE(is_network_file_system("ext4"));
}

}  // namespace
}  // namespace gradmon
