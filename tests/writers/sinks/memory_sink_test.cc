// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/memory_sink.h"

#include "control/debian_version.h"
#include "tests/writers/sample_records.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

TEST_CASE("only the last step is kept") {
  const auto last = std::make_shared<LastStep>();
  CHECK(last->content().step == Step{-1});
  MemorySink sink(last);
  Layout layout;
  layout.revision = Revision{4};
  REQUIRE(sink.begin_revision(layout));
  REQUIRE(sink.write_step(Step{1}, {plain_record(1, 0), plain_record(1, 1)}));
  REQUIRE(sink.write_step(Step{2}, {plain_record(2, 7)}));
  const auto content = last->content();
  CHECK(content.layout.revision == Revision{4});
  CHECK(content.step == Step{2});
  REQUIRE(content.records.size() == 1);
  CHECK(content.records.front().sequence == 7);
}
