// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/bounded_ask.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl/fake_job.h"
#include "tools/gradmonctl/commands/change_command.h"

namespace gradmon {
namespace {

ChangeRequest set_request(std::size_t bytes) {
  ChangeRequest request;
  request.command.verb = CommandVerb::set;
  request.command.edits = {{"format", '"' + std::string(bytes, 'x') + '"'}};
  return request;
}

TEST_CASE("an edit as large as two configs is sent") {
  FakeJob job;
  job.answer({});
  const AskJob ask = bounded_ask(job.ask());
  CHECK(change_command(set_request(std::size_t{2} << 20U), ask, job.clock(), job.console()) == 0);
  CHECK(job.asked.size() == 1);
}

TEST_CASE("an edit too large for a message is not sent and ends with 1 and both sizes") {
  FakeJob job;
  CHECK(change_command(set_request(3'000'000), bounded_ask(job.ask()), job.clock(), job.console()) == 1);
  CHECK(job.asked.empty());
  CHECK(job.err.str().find("gradmonctl: too large: the command takes 3000") == 0);
  CHECK(job.err.str().find(" bytes, a job accepts 2162688; nothing was sent\n") != std::string::npos);
}

}  // namespace
}  // namespace gradmon
