// SPDX-License-Identifier: Apache-2.0
// A config file that cannot be read because its disk or file server fails.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/failpoints/failpoints.h"

namespace gradmon {
namespace {

// A process that waits for a readable config while calls fail: its output, how often
// it opened the config, and its exit code.
struct Outcome {
  std::string output;
  std::ptrdiff_t opens = 0;
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
                            directory / "output"});
  process.wait();
  const auto calls = read_lines(directory / "calls");
  const auto opens_config = [](const std::string& call) {
    return call.find("/c.json") != call.npos && call.find(" open:") != call.npos;
  };
  return {read_text(directory / "output"), std::count_if(calls.begin(), calls.end(), opens_config),
          process.exit_code()};
}

}  // namespace

TEST_CASE("EIO or ESTALE on reading the config is reported once and reading is retried until it succeeds") {
  const std::pair<const char*, const char*> codes[] = {{"EIO", "Input/output error"},
                                                       {"ESTALE", "Stale file handle"}};
  for (const auto& [code, text] : codes) {
    for (const std::string call : {GRADMON_CALLS_THAT_FAIL}) {
      CAPTURE(code, call);
      const std::string fails = std::string(" ") + code;
      const Outcome out =
          wait_for_config(call + ":1" + fails + ";" + call + ":2" + fails + ";" + call + ":3" + fails);
      CHECK(out.output == std::string("problem it cannot be read: ") + text + "\n");
      // Failing calls may also hit inotify or the file that lists other jobs.
      CHECK(out.opens >= (std::string(call) == "read" ? 2 : 3));
      CHECK(out.code == 0);
    }
  }
}

}  // namespace gradmon
