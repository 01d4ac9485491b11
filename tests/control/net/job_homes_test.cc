// SPDX-License-Identifier: Apache-2.0
// Two processes' views of a job: each with its own output directory, and a store
// that both reach, or that one of them does not.
#include "control/net/job_homes.h"

#include <unistd.h>

#include <map>
#include <mutex>

#include "control/debian_version.h"
#include "control/net/process_identity.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

class FakeStore : public SharedStore {
 public:
  tl::expected<std::string, std::string> put_once(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    if (away_) return tl::unexpected(std::string("away"));
    return values_.emplace(key, value).first->second;
  }
  tl::expected<void, std::string> put(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    return {};
  }
  tl::expected<std::optional<std::string>, std::string> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    if (key.find("gradmon/job/") == 0) searches_ += 1;
    const auto at = values_.find(key);
    return at == values_.end() ? std::nullopt : std::optional(at->second);
  }

  // As a store does whose server was started again.
  void forget_all() {
    const std::lock_guard lock(mutex_);
    values_.clear();
  }
  void be_away(bool away) {
    const std::lock_guard lock(mutex_);
    away_ = away;
  }
  int searches() {
    const std::lock_guard lock(mutex_);
    return searches_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;  // guarded by mutex_
  bool away_ = false;                          // guarded by mutex_
  int searches_ = 0;                           // guarded by mutex_
};

class Process {
 public:
  Process(std::filesystem::path output, std::shared_ptr<SharedStore> store)
      : homes_({std::move(output), 2, random_hex(8),
                store ? JobHomes::OpenStore([store] { return store; }) : JobHomes::OpenStore()},
               disk_, mailbox_) {}

  JobHomes& homes() { return homes_; }
  // Does what the agent thread does until it is so.
  void await(const std::function<bool()>& condition) {
    REQUIRE(eventually([&] {
      homes_.keep_announced(JobHomes::Clock::now());
      for (const Mailbox::Note& note : mailbox_->take()) note();
      return condition();
    }));
  }
  void announce(const std::string& launch, const std::string& epoch) {
    JobEntry entry{epoch, launch, "ipc:///here", "", host_name(), getpid(), process_start_of(getpid()), 1};
    bool done = false;
    homes_.announce(entry, JobHomes::Create::registers, [&] { done = true; });
    await([&] { return done; });
  }
  std::string find(const std::string& launch) {
    std::string epoch;
    await([&] {
      homes_.find_rank0(launch, JobHomes::Clock::now(), [&](const JobEntry& job) { epoch = job.epoch; });
      return !epoch.empty();
    });
    return epoch;
  }
  std::string prove(Home home, const std::string& nonce) {
    std::optional<std::string> answer;
    homes_.prove(home, nonce, [&](const auto& proof) { answer = proof ? "" : proof.error(); });
    await([&] { return answer.has_value(); });
    return *answer;
  }
  std::string decide(Home home, std::uint64_t revision, std::string author) {
    Verdict verdict;
    verdict.revision = Revision{revision};
    verdict.abort_reason = AbortReason::doubt;
    verdict.author = std::move(author);
    std::optional<std::string> answer;
    homes_.decide(home, verdict, [&](const auto& held) { answer = held ? held->author : held.error(); });
    await([&] { return answer.has_value(); });
    return *answer;
  }

 private:
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  DiskThread disk_;
  JobHomes homes_;
};

TEST_CASE("ranks with one directory find each other and share its register without a store") {
  const TemporaryDirectory directory;
  Process rank0(directory.path(), nullptr);
  Process rank1(directory.path(), nullptr);
  rank0.announce("launch", "epoch");
  REQUIRE(rank1.find("launch") == "epoch");
  rank1.homes().enter("epoch");
  REQUIRE(rank1.prove(Home::directory, "epoch").empty());
  REQUIRE(rank1.prove(Home::store, "epoch").find("knows no store") == 0);
  REQUIRE(rank0.decide(Home::directory, 1, "zero") == "zero");
  REQUIRE(rank1.decide(Home::directory, 1, "one") == "zero");
}

TEST_CASE("ranks without a directory in common find each other and share the register by the store") {
  const TemporaryDirectory directory;
  const auto store = std::make_shared<FakeStore>();
  Process rank0(directory / "a", store);
  Process rank1(directory / "b", store);
  rank0.announce("launch", "epoch");
  REQUIRE(rank1.find("launch") == "epoch");
  rank1.homes().enter("epoch");
  REQUIRE(rank1.prove(Home::directory, "epoch").find("does not see rank 0's output directory") == 0);
  REQUIRE(rank1.prove(Home::store, "epoch").empty());
  REQUIRE(rank0.prove(Home::store, "epoch").empty());
  REQUIRE(rank1.decide(Home::store, 1, "one") == "one");
  REQUIRE(rank0.decide(Home::store, 1, "zero") == "one");
}

TEST_CASE("an empty store in the place of the one that was proven decides nothing") {
  const TemporaryDirectory directory;
  const auto store = std::make_shared<FakeStore>();
  Process rank0(directory / "a", store);
  rank0.announce("launch", "epoch");
  REQUIRE(rank0.prove(Home::store, "epoch").empty());
  REQUIRE(rank0.decide(Home::store, 1, "zero") == "zero");
  store->forget_all();
  REQUIRE(rank0.decide(Home::store, 1, "again").find("the store is another one") == 0);
}

TEST_CASE("a store that comes late is told where rank 0 is") {
  const TemporaryDirectory directory;
  const auto store = std::make_shared<FakeStore>();
  store->be_away(true);
  Process rank0(directory / "a", store);
  rank0.announce("launch", "epoch");
  REQUIRE(rank0.prove(Home::store, "epoch") == "away");
  store->be_away(false);
  rank0.await([&] { return store->get("gradmon/job/launch")->has_value(); });
}

TEST_CASE("a search that finds nothing asks the store each second and later each tenth") {
  const TemporaryDirectory directory;
  const auto store = std::make_shared<FakeStore>();
  Process rank1(directory / "b", store);
  const auto begun = JobHomes::Clock::now();
  const auto searches_until = [&](int from_ms, int to_ms) {
    const int before = store->searches();
    for (int ms = from_ms; ms < to_ms; ms += 100) {
      rank1.homes().find_rank0("launch", begun + std::chrono::milliseconds(ms), [](const JobEntry&) {});
      rank1.prove(Home::store, "none");  // comes after the search that has begun
    }
    return store->searches() - before;
  };
  rank1.homes().enter("epoch");
  REQUIRE(searches_until(0, 500) == 0);
  REQUIRE(searches_until(500, 10'000) == 10);
  REQUIRE(searches_until(10'000, 40'000) == 3);
}

TEST_CASE("a rank finds the job of its own launch only") {
  const TemporaryDirectory directory;
  const auto store = std::make_shared<FakeStore>();
  Process other(directory / "a", store);
  Process rank0(directory / "a", store);
  Process rank1(directory / "b", store);
  other.announce("another", "wrong");
  rank0.announce("launch", "right");
  REQUIRE(rank1.find("launch") == "right");
  REQUIRE(rank0.find("another") == "wrong");
}

TEST_CASE("a register that another epoch left in the store is not ours") {
  const TemporaryDirectory directory;
  const auto store = std::make_shared<FakeStore>();
  Process rank0(directory / "a", store);
  Process rank1(directory / "b", store);
  rank0.announce("launch", "new");
  rank1.homes().enter("old");
  REQUIRE_FALSE(rank1.prove(Home::store, "old").empty());
}

TEST_CASE("a store is given up once the directory keeps the register") {
  const TemporaryDirectory directory;
  const auto store = std::make_shared<FakeStore>();
  Process rank0(directory.path(), store);
  rank0.announce("launch", "epoch");
  REQUIRE(rank0.prove(Home::store, "epoch").empty());
  rank0.homes().settle(Home::undecided);
  REQUIRE(store.use_count() > 1);
  rank0.homes().settle(Home::directory);
  REQUIRE(rank0.prove(Home::store, "epoch").find("knows no store") == 0);
}

TEST_CASE("a rank 0 whose socket is a file of another host is out of reach") {
  JobEntry job;
  job.host = "elsewhere";
  job.endpoint = "ipc:///nowhere/control";
  REQUIRE(out_of_reach(job).find("rank 0 is on another host (elsewhere)") == 0);
  job.host = host_name();
  REQUIRE(out_of_reach(job).empty());
  job.host = "elsewhere";
  job.endpoint = "tcp://10.0.0.1:5555";
  REQUIRE(out_of_reach(job).empty());
}

}  // namespace
}  // namespace gradmon
