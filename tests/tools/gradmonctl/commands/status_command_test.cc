// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <nlohmann/json.hpp>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/status_view.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

CommandReply sample_reply() {
  CommandReply reply;
  reply.status = sample_status();
  return reply;
}

TEST_CASE("status is printed once as text or as JSON") {
  FakeJob job;
  job.answer(sample_reply());
  job.answer(sample_reply());
  CHECK(status_command({}, job.ask(), job.clock(), job.console()) == 0);
  CHECK(status_command({{}, false, true}, job.ask(), job.clock(), job.console()) == 0);
  CHECK(job.out.str() ==
        full_text(status_listing(sample_status())) + status_json(sample_status(), JsonLayout::indented));
  CHECK(job.err.str().empty());
}

TEST_CASE("status ends with the exit code of a refusal or of no answer") {
  FakeJob silent;
  CHECK(status_command({}, silent.ask(), silent.clock(), silent.console()) == 4);
  FakeJob closed;
  closed.answer(reply_with(CommandOutcome::not_allowed, "this key is not listed"));
  CHECK(status_command({}, closed.ask(), closed.clock(), closed.console()) == 5);
  CHECK(closed.err.str() == "gradmonctl: this key is not listed\n");
  FakeJob broken;
  broken.answer(reply_with(CommandOutcome::invalid_config, "a.json:1:2: one\na.json:3:4: two"));
  CHECK(status_command({}, broken.ask(), broken.clock(), broken.console()) == 6);
  CHECK(broken.err.str() == "gradmonctl: a.json:1:2: one\n  a.json:3:4: two\n");
  FakeJob empty;
  empty.answer({});
  CHECK(status_command({}, empty.ask(), empty.clock(), empty.console()) == 1);
}

TEST_CASE("status with --watch and --json prints one line each until the job is gone") {
  FakeJob job;
  for (int i = 0; i < 3; ++i) job.answer(sample_reply());
  CHECK(status_command({{}, true, true}, job.ask(), job.clock(), job.console()) == 4);
  const std::string line = status_json(sample_status(), JsonLayout::one_line);
  CHECK(job.out.str() == line + line + line);
}

TEST_CASE("status with --watch clears the screen only of a terminal that supports it") {
  FakeJob job;
  job.answer(sample_reply());
  status_command({{}, true, false}, job.ask(), job.clock(), job.console());
  CHECK(job.out.str() == full_text(status_listing(sample_status())) + "\n");
  FakeJob terminal;
  terminal.answer(sample_reply());
  status_command({{}, true, false}, terminal.ask(), terminal.clock(), {terminal.out, terminal.err, true});
  CHECK(terminal.out.str() == "\x1b[H\x1b[2J" + full_text(status_listing(sample_status())));
}

TEST_CASE("status with --watch ends when its output has no reader") {
  FakeJob job;
  job.answer(sample_reply());
  job.repeat_last_answer();
  job.out.setstate(std::ios::badbit);
  CHECK(status_command({{}, true, false}, job.ask(), job.clock(), job.console()) == 0);
}

TEST_CASE("the first line of status has the state and the agreement and the dropped rows") {
  CHECK(status_line(sample_status()) ==
        "ON since step 1200 · 3 of 5 collections left · 4/4 ranks agree (revision 7) · 0 rows dropped");
}

TEST_CASE("a job that collects without a limit says so") {
  Status status = sample_status();
  status.collect_times = 100'000'000;
  CHECK(status_line(status) ==
        "ON since step 1200 · until it is turned off · 4/4 ranks agree (revision 7) · 0 rows dropped");
}

TEST_CASE("off is shown with its reason") {
  Status status = sample_status();
  status.state = "off";
  status.reason = "finished";
  CHECK(status_line(status) == "OFF: finished · 4/4 ranks agree (revision 7) · 0 rows dropped");
  status.reason = "rejected by rank 17: no target matches";
  CHECK(status_line(status) ==
        "OFF: rejected by rank 17: no target matches · 4/4 ranks agree (revision 7) · 0 rows dropped");
  status.revision = Revision{};
  for (RankStatus& rank : status.ranks) rank.revision = Revision{};
  status.reason = "never turned on";
  CHECK(status_line(status) == "OFF: never turned on · 4/4 ranks agree (no revision yet) · 0 rows dropped");
}

TEST_CASE("a pending change is shown with its reason while off and while on") {
  Status status = sample_status();
  status.pending = Pending{Revision{8}, "rank 3 has not stepped for 90 s", 0};
  CHECK(
      status_line(status) ==
      "ON since step 1200 · 3 of 5 collections left · revision 8 pending: rank 3 has not stepped for 90 s · "
      "4/4 ranks agree (revision 7) · 0 rows dropped");
  status.state = "off";
  CHECK(status_line(status) ==
        "OFF, revision 8 pending: rank 3 has not stepped for 90 s · 4/4 ranks agree (revision 7) · 0 rows "
        "dropped");
  status.pending->since = kSampleTime;
  CHECK(status_line(status) ==
        "OFF, revision 8 pending since 2026-07-06 12:34:56 UTC: rank 3 has not stepped for 90 s · "
        "4/4 ranks agree (revision 7) · 0 rows dropped");
  status.pending = Pending{Revision{}, "waiting for rank 3", 0};
  CHECK(status_line(status) ==
        "OFF, a change pending: waiting for rank 3 · 4/4 ranks agree (revision 7) · 0 rows dropped");
}

TEST_CASE("a reason of several lines is joined to one and the last error keeps its lines") {
  Status status = sample_status();
  status.state = "off";
  status.reason = "the newest edit is refused: a.json:1:2: one\na.json:3:4: two";
  status.last_error = LastError{kSampleTime, "a.json:1:2: one\na.json:3:4: two", 1};
  const std::string text = full_text(status_listing(status));
  CHECK(text.find("OFF: the newest edit is refused: a.json:1:2: one; a.json:3:4: two · ") == 0);
  CHECK(text.find("1 time in all): a.json:1:2: one\n  a.json:3:4: two\n") != std::string::npos);
}

TEST_CASE("after a rejected change the first line says so") {
  Status status = sample_status();
  status.reason = "rejected by rank 3: no such format";
  CHECK(status_line(status) ==
        "ON since step 1200 · 3 of 5 collections left · rejected by rank 3: no such format · "
        "4/4 ranks agree (revision 7) · 0 rows dropped");
  status.state = "off";
  CHECK(status_line(status) ==
        "OFF: rejected by rank 3: no such format · 4/4 ranks agree (revision 7) · 0 rows dropped");
  status.pending = Pending{Revision{8}, "takes effect at step 1300", 0};
  CHECK(status_line(status) ==
        "OFF, revision 8 pending: takes effect at step 1300 · rejected by rank 3: no such format · "
        "4/4 ranks agree (revision 7) · 0 rows dropped");
  status.reason = "turned off by me@host pid 1 (revision 7)";
  CHECK(status_line(status).find("turned off") == std::string::npos);
}

TEST_CASE("the first line says for how long training has waited") {
  Status status = sample_status();
  status.state = "off";
  status.pending = Pending{Revision{8}, "waiting for the answer of rank 3", 0};
  status.ranks[0].waited_ms = 300;
  status.ranks[1].waited_ms = 1'500;
  CHECK(status_line(status) ==
        "OFF, revision 8 pending: waiting for the answer of rank 3 · training has waited 1.5 s · "
        "4/4 ranks agree (revision 7) · 0 rows dropped");
}

TEST_CASE("the first line names ranks that were dropped or have ended and does not count them") {
  Status status = sample_status();
  status.ranks[3].state = "dropped";
  CHECK(status_line(status).find("3/3 ranks agree (revision 7), without rank 3 (dropped) · ") !=
        std::string::npos);
  status.ranks[0].state = status.ranks[1].state = "left";
  CHECK(status_line(status).find(
            "1/1 ranks agree (revision 7), without rank 3 (dropped), ranks 0, 1 ended · ") !=
        std::string::npos);
  status.ranks[2].state = "dropped";
  CHECK(status_line(status).find("no rank is left, without ranks 2, 3 (dropped) · ") != std::string::npos);
  for (RankStatus& rank : status.ranks) rank.state = "left";
  CHECK(status_line(status).find("every rank has ended · ") != std::string::npos);
}

TEST_CASE("the first line counts many dropped ranks instead of naming them") {
  Status status = sample_status();
  for (int rank = 4; rank < 1000; ++rank) {
    status.ranks.push_back(sample_rank(rank));
    if (rank % 2 == 1) status.ranks.back().state = "dropped";
  }
  CHECK(status_line(status).find("without 498 ranks (dropped) · ") != std::string::npos);
}

TEST_CASE("the dropped rows of all ranks are added up") {
  Status status = sample_status();
  status.ranks[0].dropped = 5;
  status.ranks[3].dropped = 7;
  CHECK(status_line(status).find(" · 12 rows dropped") != std::string::npos);
}

TEST_CASE("static mode is shown without an agreement") {
  Status status = sample_status();
  status.mode = "static";
  CHECK(status_line(status) == "ON since step 1200 · 3 of 5 collections left · static mode · 0 rows dropped");
}

TEST_CASE("status as text matches its golden files") {
  const std::string collecting = full_text(status_listing(sample_status()));
  CHECK(golden_difference("status_on.txt", collecting) == "");
  const std::string troubled = full_text(status_listing(troubled_status()));
  CHECK(golden_difference("status_troubled.txt", troubled) == "");
}

using nlohmann::json;

TEST_CASE("status as JSON matches its golden files") {
  const std::string collecting = status_json(sample_status(), JsonLayout::indented);
  CHECK(golden_difference("status_on.json", collecting) == "");
  const std::string troubled = status_json(troubled_status(), JsonLayout::indented);
  CHECK(golden_difference("status_troubled.json", troubled) == "");
}

TEST_CASE("history as JSON matches its golden file") {
  const std::string text = history_json(sample_history(), JsonLayout::indented);
  CHECK(golden_difference("history.json", text) == "");
}

TEST_CASE("status as JSON has every promised field") {
  const json status = json::parse(status_json(sample_status(), JsonLayout::one_line));
  for (const char* field : {"schema_version", "epoch", "mode", "state", "reason", "revision",
                            "effective_step", "pending", "collected", "collect_times", "step_interval",
                            "config_path", "config_sha256", "last_error", "ranks"}) {
    CAPTURE(field);
    CHECK(status.contains(field));
  }
  for (const char* field : {"rank", "host", "pid", "step", "revision", "applied_step", "state", "step_ms",
                            "last_seen_ms", "records", "dropped", "error"}) {
    CAPTURE(field);
    CHECK(status.at("ranks").at(0).contains(field));
  }
}

TEST_CASE("absent values are null in JSON") {
  const json status = json::parse(status_json(Status{}, JsonLayout::one_line));
  for (const char* field : {"effective_step", "pending", "last_error", "reason", "config_sha256"}) {
    CAPTURE(field);
    CHECK(status.at(field).is_null());
  }
  const json entry = json::parse(history_json({HistoryEntry{}}, JsonLayout::one_line)).at("revisions").at(0);
  for (const char* field : {"revision", "verdict", "effective_step", "finished_step"}) {
    CAPTURE(field);
    CHECK(entry.at(field).is_null());
  }
  CHECK(entry.at("applied") == json::object());
}

TEST_CASE("one-line JSON escapes line feeds and replaces bytes that are not UTF-8") {
  Status status = sample_status();
  status.ranks[0].host = "a\xff\nb";
  const std::string text = status_json(status, JsonLayout::one_line);
  CHECK(text.find('\n') == text.size() - 1);
  CHECK(json::parse(text).at("ranks").at(0).at("host") == "a\xEF\xBF\xBD\nb");
}

}  // namespace

}  // namespace gradmon
