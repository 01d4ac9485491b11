// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch_id.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "control/host/child_process.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kRemedy[] = "set GRADMON_RUN_ID to one value on all ranks, a new one for each launch";
constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{800};
constexpr std::size_t kNonceBytes = 12;

// Environment variables for this search: an empty value, `none` and `None` count as absent.
class Given {
 public:
  explicit Given(const Lookup& lookup) : lookup_(lookup) {}

  std::string operator()(const char* name) const {
    const std::string value = lookup_(name).value_or("");
    return value == "none" || value == "None" ? "" : value;
  }
  bool is(const char* name, int number) const { return (*this)(name) == std::to_string(number); }
  std::string or_zero(const char* name) const {
    const std::string value = (*this)(name);
    return value.empty() ? "0" : value;
  }
  // torchrun sets the variable on every rank, to `none` if the user has chosen no run id.
  bool under_torchrun() const { return lookup_("TORCHELASTIC_RUN_ID").has_value(); }
  // True if torchrun's agents serve training's store. The store then outlives a restart of the ranks.
  bool agents_serve_store() const { return (*this)("TORCHELASTIC_USE_AGENT_STORE") == "True"; }

 private:
  const Lookup& lookup_;
};

std::optional<LaunchId> by_name(std::string id, const char* source) {
  if (id.empty()) return std::nullopt;
  return LaunchId{std::move(id), source};
}

bool several_agents(const Given& given, const Environment& environment) {
  if (!given("GROUP_WORLD_SIZE").empty()) return !given.is("GROUP_WORLD_SIZE", 1);
  return !given.is("LOCAL_WORLD_SIZE", environment.world_size);
}

// Each agent counts its own restarts: the agent whose ranks fail counts one, the others may not. With several
// agents the id must therefore come from the store, and is nullopt here.
std::optional<LaunchId> of_torchrun(const Given& given, const Environment& environment) {
  const std::string run = given("TORCHELASTIC_RUN_ID");
  if (run.empty()) return std::nullopt;
  if (environment.store && several_agents(given, environment)) return std::nullopt;
  return LaunchId{run + "." + given.or_zero("TORCHELASTIC_RESTART_COUNT"), "TORCHELASTIC_RUN_ID"};
}

// Open MPI's launch number is a hash of 16 bits. The key of its transports has 128 random bits.
std::optional<LaunchId> of_open_mpi(const Given& given) {
  std::string id = given("PMIX_NAMESPACE");
  if (id.empty()) id = given("OMPI_MCA_ess_base_jobid");
  const std::string key = given("OMPI_MCA_orte_precondition_transports");
  if (id.empty()) return by_name(key, "mpirun");
  return by_name(key.empty() ? id : id + "." + key, "mpirun");
}

// A batch script, and a process that it starts without srun, has a job id but no step id. Two launches
// in one script differ only in their step ids, so a step id is required.
std::optional<LaunchId> of_slurm(const Given& given, const char* source) {
  const std::string job = given("SLURM_JOB_ID");
  const std::string step = given("SLURM_STEP_ID");
  if (job.empty() || step.empty()) return std::nullopt;
  return LaunchId{job + "." + step + "." + given.or_zero("SLURM_RESTART_COUNT"), source};
}

// MPICH's own mpiexec sets none of these variables. (PMI_ID is the rank.)
std::optional<LaunchId> of_pmi(const Given& given) {
  for (const char* name : {"I_MPI_HYDRA_UUID", "PALS_APID", "PMIX_NAMESPACE", "PMI_JOBID"}) {
    if (auto id = by_name(given(name), name)) return id;
  }
  return std::nullopt;
}

// The launcher whose number of processes equals the world size has started the ranks; other launchers have
// started launchers. Compares only the size, so that all ranks get the same answer.
std::optional<LaunchId> of_numbering_launcher(const Given& given, const Environment& environment) {
  const int size = environment.world_size;
  std::optional<LaunchId> id;
  if (given.is("OMPI_COMM_WORLD_SIZE", size)) id = of_open_mpi(given);
  if (!id && given.is("SLURM_NTASKS", size)) id = of_slurm(given, "SLURM_JOB_ID and SLURM_STEP_ID");
  if (!id && given.is("PMI_SIZE", size)) id = of_pmi(given);
  return id;
}

std::optional<LaunchId> of_environment(const Given& given, const Environment& environment) {
  if (auto id = by_name(given("GRADMON_RUN_ID"), "GRADMON_RUN_ID")) return id;
  if (environment.world_size == 1) return std::nullopt;
  if (given.under_torchrun()) return of_torchrun(given, environment);
  return of_numbering_launcher(given, environment);
}

// Appends the replica group to an id, which several groups may share.
std::string of_group(const std::string& id, const Environment& environment) {
  return environment.replica_group.empty() ? id : id + ".group-" + environment.replica_group;
}

// Appends the monitor's number to an id that does not contain it.
LaunchId of_monitor(LaunchId id, int monitor) {
  if (monitor > 1) id.id += "#" + std::to_string(monitor);
  return id;
}

// If the store may outlive a restart of the ranks, the key contains the restart count, unless several agents
// count differently: ranks that they restart in one store have the same launch id.
std::string key_of(const Given& given, const Environment& environment, int monitor) {
  std::string key = "gradmon/launch/";
  const bool named = !given("GRADMON_STORE").empty();
  if (const std::string run = given("TORCHELASTIC_RUN_ID"); !run.empty()) key += run + "/";
  if (!environment.replica_group.empty()) key += "group-" + environment.replica_group + "/";
  if (named || (given.agents_serve_store() && !several_agents(given, environment)))
    key += given.or_zero("TORCHELASTIC_RESTART_COUNT") + "/";
  if (named) key += given.or_zero("SLURM_RESTART_COUNT") + "/";
  return key + std::to_string(monitor);
}

// Shares rank 0's nonce through the store. Rank 0 stores its nonce if the key has no value, and uses
// the value that the key then has. The other ranks read it.
class NonceInStore {
 public:
  NonceInStore(std::shared_ptr<SharedStore> store, std::string key, bool writes, std::string source,
               milliseconds look_for)
      : store_(std::move(store)),
        key_(std::move(key)),
        own_(writes ? random_hex(kNonceBytes) : ""),
        source_(std::move(source)),
        look_for_(look_for) {}

  tl::expected<std::optional<LaunchId>, std::string> operator()() const {
    if (own_.empty()) return read();
    auto held = store_->put_once(key_, own_);
    if (!held) return tl::unexpected(held.error());
    return LaunchId{std::move(*held), source_};
  }

 private:
  tl::expected<std::optional<LaunchId>, std::string> read() const {
    const Clock::time_point end = Clock::now() + look_for_;
    for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
      auto held = store_->get(key_);
      if (!held) return tl::unexpected(held.error());
      if (*held) return LaunchId{std::move(**held), source_};
      if (Clock::now() + pause > end) return std::nullopt;
      std::this_thread::sleep_for(pause);
    }
  }

  const std::shared_ptr<SharedStore> store_;
  const std::string key_;
  const std::string own_;  // "": this rank only reads
  const std::string source_;
  const milliseconds look_for_;
};

LaunchIdSource in_store(const Environment& environment, int monitor, const Given& given,
                        const LaunchEnvironment& world) {
  const std::string address = environment.store->host + ":" + std::to_string(environment.store->port);
  LaunchIdSource source;
  source.ask = NonceInStore(world.open_store(*environment.store), key_of(given, environment, monitor),
                            environment.rank == Rank{0}, "training's store at " + address, world.look_for);
  source.reason = environment.rank == Rank{0}
                      ? "the launch id is unknown: cannot write to the store at " + address
                      : "the launch id is unknown: rank 0 has not written it to the store at " + address;
  return source;
}

LaunchIdSource known(LaunchId id) { return {std::move(id), nullptr, ""}; }

LaunchIdSource in_process_group(std::function<std::optional<std::string>()> nonce) {
  const auto look = [nonce = std::move(nonce)]() -> tl::expected<std::optional<LaunchId>, std::string> {
    auto found = nonce();
    if (!found) return std::nullopt;
    return LaunchId{std::move(*found), "the process group's store"};
  };
  if (auto found = *look()) return known(std::move(*found));
  return {std::nullopt, look,
          "the launch id is unknown: rank 0 has not written it to the process group's store"};
}

// The parent may start the ranks again (torchrun) and the process may have several Monitors.
std::string name_on_host(int monitor, const Given& given, const LaunchEnvironment& world) {
  const std::string parent = world.parent ? world.parent() : "";
  return (parent.empty() ? random_hex(kNonceBytes) : parent) + "." +
         given.or_zero("TORCHELASTIC_RESTART_COUNT") + "#" + std::to_string(monitor);
}

LaunchIdSource source_of(const Environment& environment, int monitor, const Given& given,
                         const LaunchEnvironment& world) {
  if (auto id = of_environment(given, environment)) return known(of_monitor(std::move(*id), monitor));
  if (environment.world_size == 1) return known({random_hex(kNonceBytes), "a single rank"});
  if (world.nonce) return in_process_group(world.nonce);
  if (environment.store && world.open_store) return in_store(environment, monitor, given, world);
  if (given.under_torchrun())
    return {std::nullopt, nullptr, std::string("torchrun set no run id and there is no store: ") + kRemedy};
  if (auto id = of_slurm(given, "the Slurm step around the ranks"))
    return known(of_monitor(std::move(*id), monitor));
  const std::string local = given("LOCAL_WORLD_SIZE");
  const bool several_hosts = !local.empty() && !given.is("LOCAL_WORLD_SIZE", environment.world_size);
  const std::string parent = world.parent && !several_hosts ? world.parent() : "";
  if (!parent.empty()) return known(of_monitor({parent, "the parent process"}, monitor));
  return {std::nullopt, nullptr, std::string("cannot identify this launch: ") + kRemedy};
}

}  // namespace

bool environment_names_launch(const Environment& environment, const Lookup& lookup) {
  return environment.world_size == 1 || of_environment(Given(lookup), environment).has_value();
}

LaunchIdSource find_launch_id(const Environment& environment, int monitor, const LaunchEnvironment& world) {
  const Given given(world.lookup);
  LaunchIdSource source = source_of(environment, monitor, given, world);
  if (source.known) {
    source.known->id = of_group(source.known->id, environment);
  } else {
    source.name_on_host = of_group(name_on_host(monitor, given, world), environment);
  }
  return source;
}

std::string parent_process() {
  const pid_t parent = getppid();
  const std::uint64_t start = parent > 1 ? process_start_ticks(parent) : 0;
  return start == 0 ? "" : host_name() + "." + std::to_string(parent) + "." + std::to_string(start);
}

}  // namespace gradmon
