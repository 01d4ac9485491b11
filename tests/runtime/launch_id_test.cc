// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch_id.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "control/host/child_process.h"
#include "control/link/launch_id_search.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

static bool operator==(const LaunchId& a, const LaunchId& b) { return a.id == b.id && a.source == b.source; }

namespace {

using std::chrono::milliseconds;
using Variables = std::map<std::string, std::string>;

class MemoryStore : public SharedStore {
 public:
  tl::expected<std::string, std::string> put_once(const std::string& key, const std::string& value) override {
    if (!refusal.empty()) return tl::unexpected(refusal);
    return held.emplace(key, value).first->second;
  }
  tl::expected<void, std::string> put(const std::string& key, const std::string& value) override {
    held[key] = value;
    return {};
  }
  tl::expected<std::int64_t, std::string> add(const std::string& key, std::int64_t number) override {
    return numbers[key] += number;
  }
  tl::expected<std::optional<std::string>, std::string> get(const std::string& key) override {
    if (!refusal.empty()) return tl::unexpected(refusal);
    const auto at = held.find(key);
    return at == held.end() ? std::nullopt : std::optional(at->second);
  }

  std::string refusal;  // if not "", get() and put_once() fail with it
  std::map<std::string, std::string> held;
  std::map<std::string, std::int64_t> numbers;
};

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

Lookup lookup_in(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
}

// One launch: the variables that its launcher sets, and the search for its id.
struct Launch {
  Launch(Variables all) : variables(std::move(all)) {}

  Variables variables;
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  std::string parent = "host.7.99";
  int monitor = 1;
  std::function<std::optional<std::string>()> nonce;  // null: no process group

  LaunchIdSource source_for(const Variables& rank) const {
    const Lookup lookup = lookup_in(variables + rank);
    const auto environment = read_environment(lookup);
    REQUIRE(environment);
    LaunchEnvironment world;
    world.lookup = lookup;
    world.open_store = [store = store](const StoreAddress&) { return store; };
    world.parent = [parent = parent] { return parent; };
    world.look_for = milliseconds{0};
    world.nonce = nonce;
    return find_launch_id(*environment, monitor, world);
  }
};

const Variables kWorldOfTwo{{"WORLD_SIZE", "2"}};
const Variables kMaster{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

Variables rank(int number) { return {{"RANK", std::to_string(number)}}; }

// Checks that both ranks know the same id at once. Returns the id.
std::string common_id(const Launch& launch, const Variables& zero = rank(0), const Variables& one = rank(1)) {
  const auto first = launch.source_for(zero);
  const auto second = launch.source_for(one);
  REQUIRE(first.known);
  REQUIRE(second.known);
  REQUIRE(*first.known == *second.known);
  REQUIRE_FALSE(first.ask);
  REQUIRE(first.reason.empty());
  return first.known->id;
}

TEST_CASE("GRADMON_RUN_ID takes precedence over everything else") {
  const Launch launch{
      kWorldOfTwo + kMaster +
      Variables{{"GRADMON_RUN_ID", "mine"}, {"TORCHELASTIC_RUN_ID", "t"}, {"SLURM_JOB_ID", "7"}}};
  REQUIRE(common_id(launch) == "mine");
}

TEST_CASE("replica groups that share a run id, a parent or a store are launches of their own") {
  const Variables first{{"REPLICA_GROUP_ID", "0"}}, second{{"REPLICA_GROUP_ID", "1"}};
  const Variables named{{"GRADMON_RUN_ID", "mine"}};
  CHECK(common_id(Launch{kWorldOfTwo + named + first}) == "mine.group-0");
  CHECK(common_id(Launch{kWorldOfTwo + named + second}) == "mine.group-1");
  CHECK(common_id(Launch{kWorldOfTwo + first}) != common_id(Launch{kWorldOfTwo + second}));
  Launch launch{kWorldOfTwo + kMaster};
  std::set<std::string> ids;
  for (const Variables& group : {first, second}) {
    const auto zero = launch.source_for(rank(0) + group), one = launch.source_for(rank(1) + group);
    REQUIRE(zero.ask);
    const auto id = **zero.ask();
    CHECK(**one.ask() == id);
    CHECK(zero.name_on_host == one.name_on_host);
    ids.insert({id.id, zero.name_on_host});
  }
  CHECK(ids.size() == 4);
}

TEST_CASE("a single rank draws an id that no other process draws") {
  const Launch launch{kMaster};
  const auto first = launch.source_for({});
  const auto second = launch.source_for({});
  REQUIRE(first.known->id.size() == 24);
  REQUIRE(first.known->id != second.known->id);
  REQUIRE(first.known->source == "a single rank");
}

TEST_CASE("torchrun's run id and restart count identify a launch of one agent") {
  const Variables run{{"TORCHELASTIC_RUN_ID", "t"}, {"LOCAL_WORLD_SIZE", "2"}, {"GROUP_WORLD_SIZE", "1"}};
  REQUIRE(common_id(Launch{kWorldOfTwo + kMaster + run}) == "t.0");
  REQUIRE(common_id(Launch{kWorldOfTwo + kMaster + run + Variables{{"TORCHELASTIC_RESTART_COUNT", "2"}}}) ==
          "t.2");
}

TEST_CASE("several torchrun agents with different restart counts agree through training's store") {
  const std::string served_by_agents = GENERATE("False", "True");
  const Launch launch{kWorldOfTwo + kMaster +
                      Variables{{"TORCHELASTIC_RUN_ID", "t"},
                                {"LOCAL_WORLD_SIZE", "1"},
                                {"GROUP_WORLD_SIZE", "2"},
                                {"TORCHELASTIC_USE_AGENT_STORE", served_by_agents}}};
  const auto zero = launch.source_for(rank(0) + Variables{{"TORCHELASTIC_RESTART_COUNT", "1"}});
  const auto one = launch.source_for(rank(1) + Variables{{"TORCHELASTIC_RESTART_COUNT", "0"}});
  REQUIRE_FALSE(zero.known);
  const auto id = **zero.ask();
  REQUIRE(**one.ask() == id);
  REQUIRE(launch.store->held.begin()->first == "gradmon/launch/t/1");
}

TEST_CASE("torchrun without a run id has a nonce for each restart in the agent's store") {
  Launch launch{kWorldOfTwo + kMaster +
                Variables{{"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"},
                          {"GROUP_WORLD_SIZE", "1"},
                          {"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_NTASKS", "2"}}};
  const auto before = **launch.source_for(rank(0)).ask();
  REQUIRE(**launch.source_for(rank(1)).ask() == before);
  launch.variables["TORCHELASTIC_RESTART_COUNT"] = "1";
  const auto early = launch.source_for(rank(1));
  REQUIRE_FALSE(*early.ask());
  const auto after = **launch.source_for(rank(0)).ask();
  REQUIRE_FALSE(after == before);
  REQUIRE(**early.ask() == after);
}

TEST_CASE("a Slurm step identifies the ranks that it numbered and a requeued job is another launch") {
  const Variables step{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}, {"SLURM_NTASKS", "2"}};
  const auto task = [](int number) { return Variables{{"SLURM_PROCID", std::to_string(number)}}; };
  REQUIRE(common_id(Launch{step + kMaster}, task(0), task(1)) == "7.1.0");
  REQUIRE(common_id(Launch{step + Variables{{"SLURM_RESTART_COUNT", "2"}}}, task(0), task(1)) == "7.1.2");
}

TEST_CASE("two launches of one batch script are told apart by training's store") {
  const Variables script{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}};
  const Launch first{kWorldOfTwo + kMaster + script};
  const Launch second{kWorldOfTwo + kMaster + script};
  const auto id = **first.source_for(rank(0)).ask();
  REQUIRE(**first.source_for(rank(1)).ask() == id);
  REQUIRE_FALSE(**second.source_for(rank(0)).ask() == id);
}

TEST_CASE("a Slurm step around another launcher counts only if nothing else identifies the launch") {
  const Variables step{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}, {"SLURM_NTASKS", "1"}};
  REQUIRE_FALSE(Launch{kWorldOfTwo + kMaster + step}.source_for(rank(0)).known);
  REQUIRE(common_id(Launch{kWorldOfTwo + step}) == "7.1.0");
}

// The variables that Open MPI 4.1.4 sets, on one host and on two.
const Variables kOpenMpi{{"OMPI_COMM_WORLD_SIZE", "2"},
                         {"PMIX_NAMESPACE", "1554710529"},
                         {"OMPI_MCA_ess_base_jobid", "1554710529"},
                         {"OMPI_MCA_orte_precondition_transports", "206e7b58a08b9eed-3957e5220cc5019d"}};

Variables open_mpi_rank(int number) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(number)},
          {"OMPI_MCA_ess_base_vpid", std::to_string(number)}};
}

TEST_CASE("Open MPI's namespace and transport key identify a launch of mpirun, in a batch job too") {
  REQUIRE(common_id(Launch{kOpenMpi}, open_mpi_rank(0), open_mpi_rank(1)) ==
          "1554710529.206e7b58a08b9eed-3957e5220cc5019d");
  const Launch prte{Variables{{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "prterun-host-77@1"}}};
  REQUIRE(common_id(prte, open_mpi_rank(0), open_mpi_rank(1)) == "prterun-host-77@1");
  // On another host mpirun's daemon runs in a Slurm step of its own, on the script's host in none.
  const Variables job = kWorldOfTwo + kOpenMpi + Variables{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}};
  REQUIRE(common_id(Launch{job}, rank(0), rank(1) + Variables{{"SLURM_STEP_ID", "3"}}) ==
          "1554710529.206e7b58a08b9eed-3957e5220cc5019d");
}

TEST_CASE("a PMI launcher's job id identifies the launch and PMI_ID does not") {
  const auto pmi = [](int number) {
    return Variables{{"PMI_RANK", std::to_string(number)}, {"PMI_ID", std::to_string(number)}};
  };
  const Variables two{{"PMI_SIZE", "2"}};
  REQUIRE(common_id(Launch{two + Variables{{"I_MPI_HYDRA_UUID", "u"}}}, pmi(0), pmi(1)) == "u");
  REQUIRE(common_id(Launch{two + Variables{{"PALS_APID", "a"}, {"PMI_JOBID", "7"}}}, pmi(0), pmi(1)) == "a");
  REQUIRE(common_id(Launch{two + Variables{{"PMI_JOBID", "7.1"}}}, pmi(0), pmi(1)) == "7.1");
  REQUIRE(common_id(Launch{two}, pmi(0), pmi(1)) == "host.7.99");
  REQUIRE_FALSE(Launch{two + kMaster}.source_for(pmi(0)).known);
}

TEST_CASE("variables of an outer launcher do not identify the inner launch") {
  const Launch launch{kWorldOfTwo + kMaster +
                      Variables{{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_NAMESPACE", "outer"}}};
  REQUIRE_FALSE(launch.source_for(rank(0)).known);
}

TEST_CASE("the nonce of the process group comes before the store and after the launcher") {
  Launch launch{kWorldOfTwo + kMaster};
  launch.nonce = [] { return "drawn"; };
  REQUIRE(common_id(launch) == "drawn");
  launch.variables["TORCHELASTIC_RUN_ID"] = "t";
  launch.variables["LOCAL_WORLD_SIZE"] = "2";
  REQUIRE(common_id(launch) == "t.0");
}

TEST_CASE("a process group without a nonce yet is asked again and the store is not used") {
  Launch launch{kWorldOfTwo + kMaster};
  std::optional<std::string> drawn;
  launch.nonce = [&] { return drawn; };
  const auto source = launch.source_for(rank(1));
  REQUIRE_FALSE(source.known);
  REQUIRE(source.reason ==
          "the launch id is unknown: rank 0 has not written it to the process group's store");
  REQUIRE_FALSE(*source.ask());
  drawn = "late";
  REQUIRE((**source.ask()).id == "late");
  REQUIRE(launch.store->held.empty());
}

TEST_CASE("the first nonce in the store holds for all ranks of one monitor and for a restarted rank 0") {
  Launch launch{kWorldOfTwo + kMaster};
  const auto zero = launch.source_for(rank(0));
  const auto one = launch.source_for(rank(1));
  REQUIRE(one.reason == "the launch id is unknown: rank 0 has not written it to the store at node0:29500");
  REQUIRE_FALSE(*one.ask());
  const auto id = **zero.ask();
  REQUIRE(id.id.size() == 24);
  REQUIRE(id.source == "training's store at node0:29500");
  REQUIRE(**one.ask() == id);
  REQUIRE(**launch.source_for(rank(0)).ask() == id);  // a restarted rank 0
  launch.monitor = 2;
  REQUIRE_FALSE(**launch.source_for(rank(0)).ask() == id);
}

TEST_CASE("the key in a store that outlives launches contains the restart counts") {
  const Launch launch{kWorldOfTwo + Variables{{"GRADMON_STORE", "keeper:1"},
                                              {"TORCHELASTIC_RUN_ID", "none"},
                                              {"TORCHELASTIC_RESTART_COUNT", "3"},
                                              {"SLURM_RESTART_COUNT", "2"}}};
  REQUIRE(launch.source_for(rank(0)).ask());
  REQUIRE(launch.store->held.begin()->first == "gradmon/launch/3/2/1");
}

TEST_CASE("a store that does not answer is an error of the try") {
  const Launch launch{kWorldOfTwo + kMaster};
  launch.store->refusal = "Connection refused";
  REQUIRE(launch.source_for(rank(0)).ask().error() == "Connection refused");
  REQUIRE(launch.source_for(rank(1)).ask().error() == "Connection refused");
}

TEST_CASE("the parent process identifies a launch on one host if nothing else does") {
  Launch launch{kWorldOfTwo};
  REQUIRE(common_id(launch) == "host.7.99");
  launch.monitor = 2;
  REQUIRE(common_id(launch) == "host.7.99#2");
}

TEST_CASE("a launch that nothing identifies has no id and the reason says what to do") {
  const std::string reason =
      "cannot identify this launch: set GRADMON_RUN_ID to one value on all ranks, a new one for each launch";
  Launch launch{kWorldOfTwo + Variables{{"LOCAL_WORLD_SIZE", "1"}}};  // several hosts
  REQUIRE_FALSE(launch.source_for(rank(0)).known);
  REQUIRE_FALSE(launch.source_for(rank(0)).ask);
  REQUIRE(launch.source_for(rank(0)).reason == reason);
  launch.variables["LOCAL_WORLD_SIZE"] = "2";
  launch.parent = "";  // the parent is outside the container
  REQUIRE(launch.source_for(rank(0)).reason == reason);
}

TEST_CASE("a launch without an id has a name that its ranks on one host share") {
  Launch launch{kWorldOfTwo + Variables{{"LOCAL_WORLD_SIZE", "1"}}};  // several hosts
  const std::string name = launch.source_for(rank(0)).name_on_host;
  REQUIRE(name == launch.source_for(rank(1)).name_on_host);
  launch.monitor = 2;
  REQUIRE(name != launch.source_for(rank(0)).name_on_host);
  launch.monitor = 1;
  launch.parent = "host.8.99";
  REQUIRE(name != launch.source_for(rank(0)).name_on_host);
  launch.parent = "";  // the parent is outside the container
  REQUIRE(launch.source_for(rank(0)).name_on_host != launch.source_for(rank(0)).name_on_host);
}

TEST_CASE("the process group is asked only if the environment does not identify the launch") {
  const auto named = [](const Variables& all) {
    const Lookup lookup = lookup_in(all);
    return environment_names_launch(*read_environment(lookup), lookup);
  };
  REQUIRE(named({}));
  REQUIRE(named(kWorldOfTwo + rank(0) + Variables{{"GRADMON_RUN_ID", "mine"}}));
  REQUIRE(named(kOpenMpi + open_mpi_rank(1)));
  REQUIRE_FALSE(named(kWorldOfTwo + kMaster + rank(0)));
  REQUIRE_FALSE(named(kWorldOfTwo + rank(0)));
}

TEST_CASE("the parent process is identified by host and pid and start time") {
  REQUIRE(parent_process() == host_name() + "." + std::to_string(getppid()) + "." +
                                  std::to_string(process_start_ticks(getppid())));
}

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
