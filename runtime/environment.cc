// SPDX-License-Identifier: Apache-2.0
#include "runtime/environment.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <string_view>

namespace gradmon {
namespace {

struct Names {
  const char* rank;
  const char* size;
};
// In this order: in a Slurm job, an MPI launcher starts its daemons as tasks of a Slurm step, so the
// ranks inherit SLURM_* variables that describe the daemons.
constexpr Names kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                {"PMI_RANK", "PMI_SIZE"},
                                {"SLURM_PROCID", "SLURM_NTASKS"}};

// Returns true if srun has started this process as a task. A batch script, and a process that it starts
// without srun, has the allocation's variables, but no step id or a special one (0xfffffff0 or above). It is
// a single process, regardless of SLURM_NTASKS.
bool numbered_by_srun(const Lookup& lookup) {
  constexpr std::uint32_t special = 0xfffffff0;
  const std::string step = lookup("SLURM_STEP_ID").value_or("");
  std::uint32_t number = special;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  return error == std::errc{} && end == step.data() + step.size() && number < special;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

tl::expected<int, std::string> number(const char* name, const std::string& text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least) {
    return tl::unexpected(std::string(name) + "=\"" + text +
                          "\": expected an integer >= " + std::to_string(least));
  }
  return value;
}

tl::expected<void, std::string> read_place(const Lookup& lookup, Environment& environment) {
  for (const Names& names : kLaunchers) {
    const auto rank = lookup(names.rank);
    const auto size = lookup(names.size);
    if (!rank && !size) continue;
    if (std::string_view(names.rank) == "SLURM_PROCID" && !numbered_by_srun(lookup)) continue;
    const auto world = size ? number(names.size, *size, 1) : tl::expected<int, std::string>(1);
    if (!world) return tl::unexpected(world.error());
    if (!rank && *world > 1) {
      return tl::unexpected(std::string(names.size) + "=\"" + *size + "\" without " + names.rank);
    }
    const auto own = rank ? number(names.rank, *rank, 0) : tl::expected<int, std::string>(0);
    if (!own) return tl::unexpected(own.error());
    if (*own >= *world) {
      return tl::unexpected(std::string(names.rank) + "=\"" + *rank + "\": expected less than " + names.size +
                            " (" + std::to_string(*world) + ")");
    }
    environment.rank.value = *own;
    environment.world_size = *world;
    environment.source = std::string(names.rank) + " and " + names.size;
    return {};
  }
  return {};
}

// Sets several_hosts from the launcher whose number of processes equals the world size. A launcher
// with another number has started launchers, not ranks.
void read_hosts(const Lookup& lookup, Environment& environment) {
  const auto count = [&](const char* name) -> std::optional<int> {
    const auto given = number(name, lookup(name).value_or(""), 1);
    return given ? std::optional(*given) : std::nullopt;
  };
  const int size = environment.world_size;
  if (size == 1) {
    environment.several_hosts = false;
  } else if (const auto here = count("LOCAL_WORLD_SIZE")) {
    environment.several_hosts = *here < size;
  } else if (const auto mpi = count("OMPI_COMM_WORLD_LOCAL_SIZE");
             mpi && count("OMPI_COMM_WORLD_SIZE") == size) {
    environment.several_hosts = *mpi < size;
  } else if (const auto hydra = count("MPI_LOCALNRANKS"); hydra && count("PMI_SIZE") == size) {
    environment.several_hosts = *hydra < size;
  } else if (const auto nodes = count("SLURM_STEP_NUM_NODES"); nodes && count("SLURM_NTASKS") == size) {
    environment.several_hosts = *nodes > 1;
  }
}

tl::expected<void, std::string> read_group(const Lookup& lookup, Environment& environment) {
  const std::string group = lookup("REPLICA_GROUP_ID").value_or("");
  if (!group.empty() && !is_group_name(group)) {
    return tl::unexpected("REPLICA_GROUP_ID=\"" + group +
                          "\": expected a number, or letters, digits, _, . and -");
  }
  environment.replica_group = group;
  return {};
}

tl::expected<std::uint16_t, std::string> parse_port(const char* name, const std::string& text) {
  const auto port = number(name, text, 1);
  if (!port) return tl::unexpected(port.error());
  if (*port > 65535) return tl::unexpected(std::string(name) + "=\"" + text + "\": expected at most 65535");
  return static_cast<std::uint16_t>(*port);
}

tl::expected<void, std::string> read_store(const Lookup& lookup, Environment& environment) {
  const std::string given = lookup("GRADMON_STORE").value_or("");
  if (lower(given) == "none") return {};
  if (!given.empty()) {
    const auto colon = given.rfind(':');
    if (colon == std::string::npos || colon == 0) {
      return tl::unexpected("GRADMON_STORE=\"" + given + "\": expected HOST:PORT of a TCPStore, or none");
    }
    const auto port = parse_port("GRADMON_STORE", given.substr(colon + 1));
    if (!port) return tl::unexpected(port.error());
    environment.store = StoreAddress{given.substr(0, colon), *port};
    return {};
  }
  // Invalid values in training's own variables are ignored: gradmon does not report them.
  const std::string host = lookup("MASTER_ADDR").value_or("");
  const auto port = parse_port("MASTER_PORT", lookup("MASTER_PORT").value_or(""));
  if (!host.empty() && port) environment.store = StoreAddress{host, *port};
  return {};
}

void read_mode(const Lookup& lookup, Environment& environment) {
  const std::string text = lookup("DYNAMIC_MONITOR").value_or("");
  const std::string said = lower(text);
  const auto among = [&](std::initializer_list<const char*> words) {
    return std::find(words.begin(), words.end(), said) != words.end();
  };
  environment.dynamic = among({"1", "true", "yes", "on"});
  if (environment.dynamic || among({"", "0", "false", "no", "off"})) return;
  environment.mode_error =
      "DYNAMIC_MONITOR=\"" + text +
      "\": expected 1, true, yes or on for dynamic mode; 0, false, no, off or nothing for "
      "static mode. Static mode is used";
}

}  // namespace

std::optional<std::string> from_process(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Lookup with_rank(Lookup lookup, std::optional<int> rank, std::optional<int> world_size) {
  return [=](const char* name) -> std::optional<std::string> {
    const std::string_view requested = name;
    if (requested == "RANK" && rank) return std::to_string(*rank);
    if (requested == "WORLD_SIZE" && world_size) return std::to_string(*world_size);
    return lookup(name);
  };
}

bool is_group_name(const std::string& text) noexcept {
  constexpr std::size_t most = 64;
  return !text.empty() && text.size() <= most && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
         });
}

std::string program_name(const std::string& command_line) {
  std::istringstream words(command_line);
  std::string word;
  std::getline(words, word, '\0');
  const std::string program = std::filesystem::path(word).filename();
  if (program.rfind("python", 0) != 0) return program;
  for (bool of_option = false; std::getline(words, word, '\0');) {
    if (word == "-m" && std::getline(words, word, '\0')) return word;
    if (word == "-c") break;
    if (!of_option && word.rfind('-', 0) != 0) return std::filesystem::path(word).filename();
    of_option = word == "-W" || word == "-X";
  }
  return program;
}

tl::expected<Environment, std::string> read_environment(const Lookup& lookup) {
  Environment environment;
  if (auto placed = read_place(lookup, environment); !placed) return tl::unexpected(placed.error());
  if (auto read = read_group(lookup, environment); !read) return tl::unexpected(read.error());
  read_hosts(lookup, environment);
  environment.master_addr = lookup("MASTER_ADDR").value_or("");
  if (auto read = read_store(lookup, environment); !read) return tl::unexpected(read.error());
  read_mode(lookup, environment);
  environment.output_dir = lookup("MONITOR_OUTPUT_DIR").value_or("");
  if (environment.output_dir.empty()) environment.output_dir = "monitor_output";
  environment.endpoint = lookup("GRADMON_ENDPOINT").value_or("");
  environment.job_name = lookup("GRADMON_JOB").value_or("");
  if (auto keys = lookup("GRADMON_KEYS"); keys && !keys->empty())
    environment.keys = std::filesystem::absolute(*keys).string();
  if (lookup("GRADMON_INSECURE_LOOPBACK").value_or("") == "1") environment.insecure_loopback = true;
  return environment;
}

}  // namespace gradmon
