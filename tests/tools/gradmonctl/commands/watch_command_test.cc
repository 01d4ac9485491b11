// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include "tests/support/catch.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

// A job with a queue of states; it sends no state when the queue is empty.
class FakeLiveJob {
 public:
  FakeLiveJob() {
    CommandReply first;
    first.status = sample_status();
    fake.answer(first);
  }

  int watch(bool json = false, bool terminal = false, std::optional<Screen> screen = {}) {
    const LiveJob job{fake.ask(), [this](std::chrono::milliseconds) { return next(); },
                      [this] { return hub_lives(); }, [this] { return interrupt_after-- <= 0; },
                      [] { return kSampleTime; }};
    return watch_command({{}, json}, job, {fake.out, fake.err, terminal, screen});
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
