// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/hub_keys.h"

#include <sys/stat.h>

#include "control/debian_version.h"
#include "tests/control/host/file_mode.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a hub's own keys are saved for the next hub and only the owner can read them") {
  const TemporaryDirectory directory;
  const auto file = directory / "keys";
  auto made = hub_keys_in(file);
  REQUIRE(made);
  CHECK(made->endpoint.empty());
  made->endpoint = "tcp://10.0.0.1:5";
  made->admitted = {hub_keys_in(file)->secret.public_key(), hub_keys_in(file)->secret.public_key()};
  REQUIRE(made->admitted.size() == 2);
  REQUIRE(save_hub_keys(file, *made));
  CHECK(mode_of(file) == 0600);
  const auto again = hub_keys_in(file);
  CHECK(again->secret.bytes() == made->secret.bytes());
  CHECK(again->endpoint == made->endpoint);
  CHECK(again->admitted == made->admitted);
}

TEST_CASE("a key file that others can read or that is damaged is not used") {
  const TemporaryDirectory directory;
  const auto file = directory / "keys";
  const auto made = hub_keys_in(file);
  REQUIRE(save_hub_keys(file, *made));
  const std::string whole = read_text(file);
  const auto is_taken = [&] { return hub_keys_in(file)->secret.bytes() == made->secret.bytes(); };
  REQUIRE(is_taken());
  chmod(file.c_str(), 0640);
  CHECK_FALSE(is_taken());
  for (const std::string& text : {whole.substr(0, 20), whole + "x\n", whole + "x", std::string("\n\n")}) {
    write_text(file, text);
    chmod(file.c_str(), 0600);
    CHECK_FALSE(is_taken());
  }
}

}  // namespace
}  // namespace gradmon
