// SPDX-License-Identifier: Apache-2.0
#include "control/log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// What a process with this GRADMON_LOG writes to stderr if it logs one line of each level.
std::string lines_under(const char* wanted) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    wanted == nullptr ? unsetenv("GRADMON_LOG") : setenv("GRADMON_LOG", wanted, 1);
    log_debug("debugging");
    log_info("informing");
    log_warn("warning");
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 512> part{};
  for (ssize_t n = 0; (n = read(ends[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(n));
  close(ends[0]);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  return text;
}

const std::string kInfo = "gradmon: informing\ngradmon: warning\n";

TEST_CASE("GRADMON_LOG sets the lowest level shown, in any case") {
  CHECK(lines_under(nullptr) == kInfo);
  CHECK(lines_under("INFO") == kInfo);
  CHECK(lines_under("Warn") == "gradmon: warning\n");
  CHECK(lines_under("debug") == "gradmon: debugging\n" + kInfo);
  CHECK(lines_under("OFF").empty());
}

TEST_CASE("an unknown word in GRADMON_LOG keeps the default level and is warned of once") {
  CHECK(lines_under("verbose") ==
        "gradmon: GRADMON_LOG: unknown level \"verbose\" (expected debug, info, warn, error or off)\n" +
            kInfo);
}

}  // namespace
}  // namespace gradmon
