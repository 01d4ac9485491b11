// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

CommandReply sample_reply() {
  CommandReply reply;
  reply.status = sample_status();
  return reply;
}

TEST_CASE("status is printed once as text or as JSON") {
  FakeJob job{sample_reply(), sample_reply()};
  CHECK(status_command({}, job.ask(), job.clock(), job.console()) == 0);
  CHECK(status_command({{}, true}, job.ask(), job.clock(), job.console()) == 0);
  CHECK(job.out.str() ==
        full_text(status_listing(sample_status())) + status_json(sample_status(), JsonLayout::indented));
  CHECK(job.err.str().empty());
}

TEST_CASE("status ends with the exit code of a refusal or of no answer") {
  FakeJob silent;
  CHECK(status_command({}, silent.ask(), silent.clock(), silent.console()) == 4);
  FakeJob closed{reply_with(CommandOutcome::not_allowed, "this key is not listed")};
  CHECK(status_command({}, closed.ask(), closed.clock(), closed.console()) == 5);
  CHECK(closed.err.str() == "gradmonctl: this key is not listed\n");
  FakeJob broken{reply_with(CommandOutcome::invalid_config, "a.json:1:2: one\na.json:3:4: two")};
  CHECK(status_command({}, broken.ask(), broken.clock(), broken.console()) == 6);
  CHECK(broken.err.str() == "gradmonctl: a.json:1:2: one\n  a.json:3:4: two\n");
  FakeJob empty{{}};
  CHECK(status_command({}, empty.ask(), empty.clock(), empty.console()) == 1);
}

TEST_CASE("status with --watch and --json prints one line each until the job is gone") {
  FakeJob job;
  for (int i = 0; i < 3; ++i) job.answer(sample_reply());
  CHECK(status_command({{}, true, false, true}, job.ask(), job.clock(), job.console()) == 4);
  const std::string line = status_json(sample_status(), JsonLayout::one_line);
  CHECK(job.out.str() == line + line + line);
}

TEST_CASE("status with --watch clears the screen only of a terminal that supports it") {
  FakeJob job{sample_reply()};
  status_command({{}, false, false, true}, job.ask(), job.clock(), job.console());
  CHECK(job.out.str() == full_text(status_listing(sample_status())) + "\n");
  FakeJob terminal{sample_reply()};
  status_command({{}, false, false, true}, terminal.ask(), terminal.clock(),
                 {terminal.out, terminal.err, true});
  CHECK(terminal.out.str() == "\x1b[H\x1b[2J" + full_text(status_listing(sample_status())));
}

TEST_CASE("status with --watch ends when its output has no reader") {
  FakeJob job{sample_reply()};
  job.repeat_last_answer();
  job.out.setstate(std::ios::badbit);
  CHECK(status_command({{}, false, false, true}, job.ask(), job.clock(), job.console()) == 0);
}

Status off(const char* reason) {
  Status status = sample_status();
  status.state = "off";
  status.reason = reason;
  return status;
}

// A change waits. `before`: what became of the change before it.
Status pending(const char* state, const char* reason, WallTime since = 0, const char* before = "") {
  Status status = sample_status();
  status.state = state;
  status.reason = before;
  status.pending = Pending{Revision{8}, reason, since};
  return status;
}

Status with_ranks(const std::vector<const char*>& states) {
  Status status = sample_status();
  for (std::size_t rank = 0; rank < states.size(); ++rank) status.ranks[rank].state = states[rank];
  return status;
}

TEST_CASE("the first line of status is that of the golden file") {
  const char* const stuck = "rank 3 has not stepped for 90 s";
  const char* const rejected = "rejected by rank 3: no such format";
  Status endless = sample_status(), on_rejected = endless, losing = endless, static_mode = endless;
  endless.collect_times = 100'000'000;
  on_rejected.reason = rejected;
  losing.ranks[0].dropped = 5;
  losing.ranks[3].dropped = 7;
  static_mode.mode = "static";
  Status fresh = off("never turned on");
  fresh.revision = Revision{};
  for (RankStatus& rank : fresh.ranks) rank.revision = Revision{};
  Status unnumbered = pending("off", "waiting for rank 3");
  unnumbered.pending->revision = Revision{};
  Status waited = pending("off", "waiting for the answer of rank 3");
  waited.ranks[0].waited_ms = 300;
  waited.ranks[1].waited_ms = 1'500;
  Status many = sample_status();
  for (int rank = 4; rank < 1000; ++rank) {
    many.ranks.push_back(sample_rank(rank));
    if (rank % 2 == 1) many.ranks.back().state = "dropped";
  }
  std::string lines;
  for (const Status& status :
       {sample_status(),
        endless,
        off("finished"),
        off("rejected by rank 17: no target matches"),
        fresh,
        pending("on", stuck),
        pending("off", stuck),
        pending("off", stuck, kSampleTime),
        unnumbered,
        on_rejected,
        off(rejected),
        pending("off", "takes effect at step 1300", 0, rejected),
        pending("off", "takes effect at step 1300", 0, "turned off by me@host pid 1 (revision 7)"),
        waited,
        with_ranks({"idle", "idle", "idle", "dropped"}),
        with_ranks({"left", "left", "idle", "dropped"}),
        with_ranks({"left", "left", "dropped", "dropped"}),
        with_ranks({"left", "left", "left", "left"}),
        many,
        losing,
        static_mode})
    lines += status_line(status) + "\n";
  CHECK(golden_difference("status_lines.txt", lines) == "");
}

TEST_CASE("a reason of several lines is joined to one and the last error keeps its lines") {
  Status status = off("the newest edit is refused: a.json:1:2: one\na.json:3:4: two");
  status.last_error = LastError{kSampleTime, "a.json:1:2: one\na.json:3:4: two", 1};
  const std::string text = full_text(status_listing(status));
  CHECK(text.find("OFF: the newest edit is refused: a.json:1:2: one; a.json:3:4: two · ") == 0);
  CHECK(text.find("1 time in all): a.json:1:2: one\n  a.json:3:4: two\n") != std::string::npos);
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

// A job with a queue of states; it sends no state when the queue is empty.
class FakeLiveJob {
 public:
  FakeLiveJob() {
    CommandReply first;
    first.status = sample_status();
    fake.answer(first);
  }

  int watch(bool as_json = false, bool terminal = false, std::optional<Screen> screen = {}) {
    const LiveJob job{fake.ask(), [this](std::chrono::milliseconds) { return next(); },
                      [this] { return hub_lives(); }, [this] { return interrupt_after-- <= 0; },
                      [] { return kSampleTime; }};
    return watch_command({{}, as_json}, job, {fake.out, fake.err, terminal, screen});
  }
  std::string out() const { return fake.out.str(); }
  std::string err() const { return fake.err.str(); }

  FakeJob fake;
  std::vector<Status> states;
  std::optional<bool> lives = false;
  int interrupt_after = 1000;
  int looks_without_hub = 0;  // how many calls of `lives` find no hub
  std::vector<Status> states_after_absence;

 private:
  std::optional<bool> hub_lives() {
    if (looks_without_hub-- <= 0) return lives;
    states = std::exchange(states_after_absence, {});
    return false;
  }
  std::optional<Status> next() {
    if (states.empty()) return {};
    Status state = states.front();
    states.erase(states.begin());
    return state;
  }
};

TEST_CASE("watch fits into a small terminal and says how to see all ranks") {
  FakeLiveJob job;
  CHECK(job.watch(false, true, Screen{100, 8}) == 0);
  CHECK(job.out().find("… and 4 more ranks (gradmonctl status --all shows all)") != std::string::npos);
}

Status collected(std::int64_t count) {
  Status status = sample_status();
  status.collected = count;
  return status;
}

TEST_CASE("without a terminal watch prints one line for each change") {
  FakeLiveJob job;
  job.states = {sample_status(), collected(3), collected(3)};
  CHECK(job.watch() == 0);
  CHECK(job.out() == "2026-07-06 12:34:56 UTC  " + status_line(sample_status()) +
                         "\n2026-07-06 12:34:56 UTC  " + status_line(collected(3)) + "\n");
  CHECK(job.err() == "gradmonctl: the job has ended\n");
}

TEST_CASE("watch goes on after a short absence of the hub") {
  FakeLiveJob job;
  job.looks_without_hub = 1;
  job.lives = true;
  job.states_after_absence = {collected(3)};
  job.interrupt_after = 3;
  CHECK(job.watch() == 0);
  CHECK(job.out().find(status_line(collected(3))) != std::string::npos);
  CHECK(job.err().empty());
}

TEST_CASE("in a terminal watch overwrites one screen") {
  FakeLiveJob job;
  CHECK(job.watch(false, true) == 0);
  CHECK(job.out().find("\x1b[H" + status_line(sample_status()) + "\x1b[K\n") == 0);
  CHECK(job.out().substr(job.out().size() - 3) == "\x1b[J");
}

TEST_CASE("watch as JSON prints one line for each state") {
  FakeLiveJob job;
  job.states = {sample_status(), collected(3)};
  CHECK(job.watch(true) == 0);
  const std::string line = status_json(sample_status(), JsonLayout::one_line);
  CHECK(job.out() == line + line + status_json(collected(3), JsonLayout::one_line));
}

TEST_CASE("an interrupt ends watch with 0 and without a message") {
  FakeLiveJob job;
  job.states = {collected(3), collected(4)};
  job.interrupt_after = 1;
  CHECK(job.watch() == 0);
  CHECK(job.err().empty());
  CHECK(job.states.size() == 1);
}

TEST_CASE("watch asks a silent job once more and reports its silence once") {
  FakeLiveJob job;
  job.lives = true;
  job.interrupt_after = 50;
  CHECK(job.watch() == 0);
  CHECK(job.fake.asked.size() == 2);
  CHECK(job.err() == "gradmonctl: no answer\ngradmonctl: its hub is running; waiting for an answer\n");
}

TEST_CASE("watch shows the answers of a job that sends no states") {
  FakeLiveJob job;
  job.lives = true;
  job.interrupt_after = 10;
  CommandReply again;
  again.status = collected(4);
  job.fake.answer(again);
  job.fake.repeat_last_answer();
  CHECK(job.watch() == 0);
  CHECK(job.out().find(status_line(collected(4))) != std::string::npos);
  CHECK(job.err().empty());
}

TEST_CASE("silence ends watch with 4 if it is unknown whether the job lives") {
  FakeLiveJob job;
  job.lives = std::nullopt;
  CHECK(job.watch() == 4);
  CHECK(job.err() == "gradmonctl: no answer\n");
}

TEST_CASE("watch of a job that never answers ends with 4") {
  FakeJob silent;
  const LiveJob job{silent.ask(), {}, {}, {}, {}};
  CHECK(watch_command({}, job, silent.console()) == 4);
}

}  // namespace

}  // namespace gradmon
