// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/finding.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/golden.h"

namespace gradmon {
namespace {

using Level = Finding::Level;

Findings sample_findings() {
  return {{Level::ok, "job", "ON since step 1200", ""},
          {Level::warn, "config watch", "a save raises no event", "put it on a local disk"},
          {Level::fail, "output mode", "0777: everybody can write to evil\x1b[31m", "chmod o-w out"}};
}

TEST_CASE("findings as text and as JSON match their golden files") {
  CHECK(golden_difference("findings.txt", findings_text(sample_findings())) == "");
  CHECK(golden_difference("findings.json", findings_json(sample_findings())) == "");
  CHECK(worst({}) == Level::ok);
  CHECK(worst(sample_findings()) == Level::fail);
}

TEST_CASE("a finding of several lines keeps its lines") {
  const Findings findings{{Level::warn, "last error", "a.json:1:2: one\na.json:3:4: two", "mend\nboth"}};
  CHECK(findings_text(findings) ==
        "warn  last error  a.json:1:2: one\n"
        "                  a.json:3:4: two\n"
        "                  → mend\n"
        "                    both\n");
}

}  // namespace
}  // namespace gradmon
