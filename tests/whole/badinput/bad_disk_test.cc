// SPDX-License-Identifier: Apache-2.0
// A config file that cannot be read because its disk or
// server is ill.
#include <algorithm>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/failpoints/failpoints.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// What a process says that waits for a readable config while these calls fail,
// and how often it has tried to open it.
struct Outcome {
  std::string said;
  std::ptrdiff_t opened = 0;
  int code = -1;
};

Outcome wait_for_config(const std::string& points) {
  const TemporaryDirectory directory;
  const std::filesystem::path conf = directory / "conf";
  std::filesystem::create_directory(conf);
  write_text(conf / "c.json", R"({"dynamic_on": false})");
  FailpointProcess process({{test_program("failpoint-write-back"), (conf / "c.json").string(),
                             (directory / "out").string(), "look"},
                            {},
                            conf,
                            points,
                            directory / "calls",
                            directory / "said"});
  process.wait();
  const auto calls = lines_of(directory / "calls");
  const auto opens = [](const std::string& call) {
    return call.find("/c.json") != call.npos && call.find(" open:") != call.npos;
  };
  return {read_text(directory / "said"), std::count_if(calls.begin(), calls.end(), opens),
          process.exit_code()};
}

}  // namespace

TEST_CASE("EIO and ESTALE on reading: said once and tried again each second until it can be read") {
  const std::pair<const char*, const char*> codes[] = {{"EIO", "Input/output error"},
                                                       {"ESTALE", "Stale file handle"}};
  for (const auto& [code, text] : codes) {
    for (const std::string call : {GRADMON_CALLS_THAT_FAIL}) {
      CAPTURE(code, call);
      const std::string fails = std::string(" ") + code;
      const Outcome out =
          wait_for_config(call + ":1" + fails + ";" + call + ":2" + fails + ";" + call + ":3" + fails);
      CHECK(out.said == std::string("problem it cannot be read: ") + text + "\n");
      // inotify is read as well, and the file that tells of other jobs opened
      CHECK(out.opened >= (std::string(call) == "read" ? 2 : 3));
      CHECK(out.code == 0);
    }
  }
}

}  // namespace gradmon
