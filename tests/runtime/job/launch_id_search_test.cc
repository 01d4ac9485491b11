// SPDX-License-Identifier: Apache-2.0
#include "control/link/launch_id_search.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Time = LaunchIdSearch::Time;
using Answer = tl::expected<std::optional<LaunchId>, std::string>;

// What a try gives; a try waits while it is held.
class Question {
 public:
  AskForLaunchId ask() {
    return [state = state_]() -> Answer {
      state->tries += 1;
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return !state->held; });
      if (state->throws) throw std::runtime_error("thrown");
      return state->answer;
    };
  }
  int tries() const { return state_->tries; }
  void answer(Answer answer) {
    change([&] { state_->answer = std::move(answer); });
  }
  void throws() {
    change([&] { state_->throws = true; });
  }
  void hold() {
    change([&] { state_->held = true; });
  }
  void let_go() {
    change([&] { state_->held = false; });
  }
  // The search's thread and the search itself, besides this.
  long holders() const { return state_.use_count() - 1; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Answer answer = std::optional<LaunchId>();
    bool held = false;
    bool throws = false;
    std::atomic<int> tries{0};
  };

  template <typename Change>
  void change(Change&& made) {
    const std::lock_guard lock(state_->mutex);
    made();
    state_->changed.notify_all();
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Until the try under way has been taken in.
std::optional<LaunchId> taken_in(const Question& question, LaunchIdSearch& search, Time now) {
  search.poll(now);
  REQUIRE(eventually([&] { return question.holders() == 1; }));  // the search's own; the thread has ended
  return search.poll(now);
}

TEST_CASE("the first try begins at once and its id stays known") {
  Question question;
  question.answer(LaunchId{"x", "a test"});
  LaunchIdSearch search(question.ask(), Time{500});
  REQUIRE(taken_in(question, search, Time{500})->source == "a test");
  REQUIRE(search.poll(Time{100'000})->id == "x");
  REQUIRE(question.tries() == 1);
}

TEST_CASE("tries come each second for a minute and each ten seconds after it") {
  Question question;
  LaunchIdSearch search(question.ask(), Time{0});
  int tries = 0;
  for (Time now{0}; now < Time{60'000}; now += Time{1'000}) {
    REQUIRE_FALSE(taken_in(question, search, now));
    REQUIRE(question.tries() == ++tries);
    search.poll(now + Time{999});
    REQUIRE(question.tries() == tries);
  }
  REQUIRE_FALSE(taken_in(question, search, Time{60'000}));
  REQUIRE(question.tries() == ++tries);
  search.poll(Time{69'999});
  REQUIRE(question.tries() == tries);
  REQUIRE_FALSE(taken_in(question, search, Time{70'000}));
  REQUIRE(question.tries() == ++tries);
}

TEST_CASE("a try that takes long blocks nobody and no other begins beside it") {
  Question question;
  question.hold();
  LaunchIdSearch search(question.ask(), Time{0});
  for (Time now{0}; now < Time{5'000}; now += Time{100}) REQUIRE_FALSE(search.poll(now));
  REQUIRE(question.tries() <= 1);
  question.answer(LaunchId{"x", ""});
  question.let_go();
  REQUIRE(taken_in(question, search, Time{5'000})->id == "x");
  REQUIRE(question.tries() == 1);
}

TEST_CASE("the last error is the last try's") {
  Question question;
  question.answer(tl::unexpected(std::string("Connection refused")));
  LaunchIdSearch search(question.ask(), Time{0});
  REQUIRE_FALSE(taken_in(question, search, Time{0}));
  REQUIRE(search.last_error() == "Connection refused");
  question.answer(std::optional<LaunchId>());
  REQUIRE_FALSE(taken_in(question, search, Time{1'000}));
  REQUIRE(search.last_error().empty());
  question.throws();
  REQUIRE_FALSE(taken_in(question, search, Time{2'000}));
  REQUIRE(search.last_error() == "thrown");
}

TEST_CASE("a search that goes away waits for no try and the try's thread ends by itself") {
  Question question;
  question.hold();
  {
    LaunchIdSearch search(question.ask(), Time{0});
    search.poll(Time{0});
  }
  REQUIRE(eventually([&] { return question.tries() == 1; }));
  question.let_go();
  REQUIRE(eventually([&] { return question.holders() == 0; }));
}

}  // namespace
}  // namespace gradmon
