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

// The answers to tries. A try blocks while `held` is set.
class FakeIdSource {
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
  void release() {
    change([&] { state_->held = false; });
  }
  // Other owners of the state: the search, and the thread of a running try.
  long owners() const { return state_.use_count() - 1; }

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

// Polls, waits until the try has ended, and polls again for its answer.
std::optional<LaunchId> poll_for_answer(const FakeIdSource& id_source, LaunchIdSearch& search, Time now) {
  search.poll(now);
  REQUIRE(eventually([&] { return id_source.owners() == 1; }));  // the search; the thread has ended
  return search.poll(now);
}

TEST_CASE("the first try begins at once and its id stays known") {
  FakeIdSource id_source;
  id_source.answer(LaunchId{"x", "a test"});
  LaunchIdSearch search(id_source.ask(), Time{500});
  REQUIRE(poll_for_answer(id_source, search, Time{500})->source == "a test");
  REQUIRE(search.poll(Time{100'000})->id == "x");
  REQUIRE(id_source.tries() == 1);
}

TEST_CASE("tries are made every second for a minute and every ten seconds afterwards") {
  FakeIdSource id_source;
  LaunchIdSearch search(id_source.ask(), Time{0});
  int tries = 0;
  for (Time now{0}; now < Time{60'000}; now += Time{1'000}) {
    REQUIRE_FALSE(poll_for_answer(id_source, search, now));
    REQUIRE(id_source.tries() == ++tries);
    search.poll(now + Time{999});
    REQUIRE(id_source.tries() == tries);
  }
  REQUIRE_FALSE(poll_for_answer(id_source, search, Time{60'000}));
  REQUIRE(id_source.tries() == ++tries);
  search.poll(Time{69'999});
  REQUIRE(id_source.tries() == tries);
  REQUIRE_FALSE(poll_for_answer(id_source, search, Time{70'000}));
  REQUIRE(id_source.tries() == ++tries);
}

TEST_CASE("a slow try does not block polling and no second try begins beside it") {
  FakeIdSource id_source;
  id_source.hold();
  LaunchIdSearch search(id_source.ask(), Time{0});
  for (Time now{0}; now < Time{5'000}; now += Time{100}) REQUIRE_FALSE(search.poll(now));
  REQUIRE(id_source.tries() <= 1);
  id_source.answer(LaunchId{"x", ""});
  id_source.release();
  REQUIRE(poll_for_answer(id_source, search, Time{5'000})->id == "x");
  REQUIRE(id_source.tries() == 1);
}

TEST_CASE("the last error is that of the last try") {
  FakeIdSource id_source;
  id_source.answer(tl::unexpected(std::string("Connection refused")));
  LaunchIdSearch search(id_source.ask(), Time{0});
  REQUIRE_FALSE(poll_for_answer(id_source, search, Time{0}));
  REQUIRE(search.last_error() == "Connection refused");
  id_source.answer(std::optional<LaunchId>());
  REQUIRE_FALSE(poll_for_answer(id_source, search, Time{1'000}));
  REQUIRE(search.last_error().empty());
  id_source.throws();
  REQUIRE_FALSE(poll_for_answer(id_source, search, Time{2'000}));
  REQUIRE(search.last_error() == "thrown");
}

TEST_CASE("a destroyed search waits for no try and the try's thread ends by itself") {
  FakeIdSource id_source;
  id_source.hold();
  {
    LaunchIdSearch search(id_source.ask(), Time{0});
    search.poll(Time{0});
  }
  REQUIRE(eventually([&] { return id_source.tries() == 1; }));
  id_source.release();
  REQUIRE(eventually([&] { return id_source.owners() == 0; }));
}

}  // namespace
}  // namespace gradmon
