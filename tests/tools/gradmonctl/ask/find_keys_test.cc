// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/find_keys.h"

#include <cstdlib>
#include <filesystem>

#include "control/debian_version.h"
#include "control/hub/keys/keygen.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// The variables that find_keys reads, as the test wants them.
struct Variables {
  Variables(const std::string& keys, const std::string& config_home, const std::string& insecure) {
    setenv("GRADMON_KEYS", keys.c_str(), 1);
    setenv("XDG_CONFIG_HOME", config_home.c_str(), 1);
    setenv("GRADMON_INSECURE_LOOPBACK", insecure.c_str(), 1);
  }
  ~Variables() {
    for (const char* name : {"GRADMON_KEYS", "XDG_CONFIG_HOME", "GRADMON_INSECURE_LOOPBACK"}) unsetenv(name);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
};

TEST_CASE("keys come from the option or else the variable or else the usual directory") {
  const TemporaryDirectory scratch;
  const std::string tcp = "tcp://127.0.0.1:5555";
  for (const char* name : {"option", "variable"}) REQUIRE(make_key_directory(scratch / name));
  REQUIRE(make_key_directory(scratch / "home/gradmon/keys"));
  const auto job_of = [](const std::filesystem::path& directory) {
    return read_operator_keys(directory)->server_public;
  };
  JobSelector selector;
  {
    const Variables variables((scratch / "variable").string(), (scratch / "home").string(), "");
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "variable"));
    selector.keys = (scratch / "option").string();
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "option"));
    CHECK_FALSE(find_keys(selector, "ipc:///tmp/x")->has_value());
    selector.keys = (scratch / "nothing").string();
    CHECK(find_keys(selector, tcp).error().find("nothing: No such file or directory") != std::string::npos);
  }
  selector.keys = "";
  {
    const Variables variables("", (scratch / "home").string(), "");
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "home/gradmon/keys"));
  }
  {
    const Variables variables("", (scratch / "home").string(), "1");
    CHECK_FALSE(find_keys(selector, tcp)->has_value());
    CHECK(find_keys(selector, "tcp://192.0.2.1:5555")->has_value());
  }
  const Variables variables("", (scratch / "nowhere").string(), "");
  CHECK_FALSE(find_keys(selector, tcp)->has_value());
}

}  // namespace
}  // namespace gradmon
