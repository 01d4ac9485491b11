// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/find_keys.h"

#include <filesystem>

#include "control/debian_version.h"
#include "control/hub/keys/keygen.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/scoped_variable.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// Sets the variables that find_keys() reads.
class ScopedKeyVariables {
 public:
  ScopedKeyVariables(const std::string& keys, const std::string& config_home, const std::string& insecure)
      : keys_("GRADMON_KEYS", keys.c_str()),
        config_home_("XDG_CONFIG_HOME", config_home.c_str()),
        insecure_("GRADMON_INSECURE_LOOPBACK", insecure.c_str()) {}

 private:
  const ScopedVariable keys_;
  const ScopedVariable config_home_;
  const ScopedVariable insecure_;
};

TEST_CASE("keys come from the option or else GRADMON_KEYS or else the default directory") {
  const TemporaryDirectory scratch;
  const std::string tcp = "tcp://127.0.0.1:5555";
  for (const char* name : {"option", "variable"}) REQUIRE(make_key_directory(scratch / name));
  REQUIRE(make_key_directory(scratch / "home/gradmon/keys"));
  const auto job_of = [](const std::filesystem::path& directory) {
    return read_operator_keys(directory)->server_public;
  };
  JobSelector selector;
  {
    const ScopedKeyVariables variables((scratch / "variable").string(), (scratch / "home").string(), "");
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "variable"));
    selector.keys = (scratch / "option").string();
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "option"));
    CHECK_FALSE(find_keys(selector, "ipc:///tmp/x")->has_value());
    selector.keys = (scratch / "nothing").string();
    CHECK(find_keys(selector, tcp).error().find("nothing: No such file or directory") != std::string::npos);
  }
  selector.keys = "";
  {
    const ScopedKeyVariables variables("", (scratch / "home").string(), "");
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "home/gradmon/keys"));
  }
  {
    const ScopedKeyVariables variables("", (scratch / "home").string(), "1");
    CHECK_FALSE(find_keys(selector, tcp)->has_value());
    CHECK(find_keys(selector, "tcp://192.0.2.1:5555")->has_value());
  }
  const ScopedKeyVariables variables("", (scratch / "nowhere").string(), "");
  CHECK_FALSE(find_keys(selector, tcp)->has_value());
}

}  // namespace
}  // namespace gradmon
