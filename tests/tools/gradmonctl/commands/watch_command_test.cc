// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/watch_command.h"

#include <utility>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

// A job whose next states the test has laid down; then it falls silent.
class FollowedJob {
 public:
  FollowedJob() {
    CommandReply first;
    first.status = sample_status();
    fake.answer(first);
  }

  int watch(bool json = false, bool terminal = false, std::optional<Screen> screen = {}) {
    const LiveJob job{fake.ask(), [this](std::chrono::milliseconds) { return next(); },
                      [this] { return look(); }, [this] { return interrupt_after-- <= 0; },
                      [] { return WallTime{1783341296789}; }};
    return watch_command({{}, json}, job, {fake.out, fake.err, terminal, screen});
  }
  std::string out() const { return fake.out.str(); }
  std::string err() const { return fake.err.str(); }

  FakeJob fake;
  std::vector<Status> states;
  std::optional<bool> lives = false;
  int interrupt_after = 1000;
  int gone_for = 0;  // so many looks find no hub
  std::vector<Status> states_after_gone;

 private:
  std::optional<bool> look() {
    if (gone_for-- <= 0) return lives;
    states = std::exchange(states_after_gone, {});
    return false;
  }
  std::optional<Status> next() {
    if (states.empty()) return {};
    Status state = states.front();
    states.erase(states.begin());
    return state;
  }
};

TEST_CASE("a live view fits into a small terminal and says how to see all") {
  FollowedJob job;
  CHECK(job.watch(false, true, Screen{100, 8}) == 0);
  CHECK(job.out().find("… and 3 more ranks (gradmonctl status --all shows all)") != std::string::npos);
}

Status collected(std::int64_t count) {
  Status status = sample_status();
  status.collected = count;
  return status;
}

TEST_CASE("without a terminal each change is one line and what stays the same is none") {
  FollowedJob job;
  job.states = {sample_status(), collected(3), collected(3)};
  CHECK(job.watch() == 0);
  CHECK(job.out() == "2026-07-06 12:34:56 UTC  " + status_line(sample_status()) +
                         "\n2026-07-06 12:34:56 UTC  " + status_line(collected(3)) + "\n");
  CHECK(job.err() == "gradmonctl: the job has ended\n");
}

TEST_CASE("a hub that is gone for a moment is not the end of the job") {
  FollowedJob job;
  job.gone_for = 1;
  job.lives = true;
  job.states_after_gone = {collected(3)};
  job.interrupt_after = 3;
  CHECK(job.watch() == 0);
  CHECK(job.out().find(status_line(collected(3))) != std::string::npos);
  CHECK(job.err().empty());
}

TEST_CASE("a terminal shows one screen that is drawn over") {
  FollowedJob job;
  CHECK(job.watch(false, true) == 0);
  CHECK(job.out().find("\x1b[H" + status_line(sample_status()) + "\x1b[K\n") == 0);
  CHECK(job.out().substr(job.out().size() - 3) == "\x1b[J");
}

TEST_CASE("for programs every state is one line") {
  FollowedJob job;
  job.states = {sample_status(), collected(3)};
  CHECK(job.watch(true) == 0);
  const std::string line = status_json(sample_status(), JsonLayout::one_line);
  CHECK(job.out() == line + line + status_json(collected(3), JsonLayout::one_line));
}

TEST_CASE("an interrupt ends watching with 0 and without a word") {
  FollowedJob job;
  job.states = {collected(3), collected(4)};
  job.interrupt_after = 1;
  CHECK(job.watch() == 0);
  CHECK(job.err().empty());
  CHECK(job.states.size() == 1);
}

TEST_CASE("a job that is there but silent is asked, waited for, and complained of once") {
  FollowedJob job;
  job.lives = true;
  job.interrupt_after = 50;
  CHECK(job.watch() == 0);
  CHECK(job.fake.asked.size() == 2);
  CHECK(job.err() == "gradmonctl: no answer\ngradmonctl: its hub is running; waiting for an answer\n");
}

TEST_CASE("a silent job that still answers goes on being shown") {
  FollowedJob job;
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

TEST_CASE("where nothing tells whether the job lives its silence ends with 4") {
  FollowedJob job;
  job.lives = std::nullopt;
  CHECK(job.watch() == 4);
  CHECK(job.err() == "gradmonctl: no answer\n");
}

TEST_CASE("watching a job that does not answer at first ends as other commands do") {
  FakeJob silent;
  const LiveJob job{silent.ask(), {}, {}, {}, {}};
  CHECK(watch_command({}, job, silent.console()) == 4);
}

}  // namespace
}  // namespace gradmon
