// SPDX-License-Identifier: Apache-2.0
#include "runtime/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "control/net/process_identity.h"

namespace gradmon {
namespace {

struct Names {
  const char* rank;
  const char* size;
};
constexpr Names kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                {"SLURM_PROCID", "SLURM_NTASKS"},
                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                {"PMI_RANK", "PMI_SIZE"}};

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
    environment.rank = *own;
    environment.world_size = *world;
    environment.source = std::string(names.rank) + " and " + names.size;
    return {};
  }
  return {};
}

tl::expected<std::uint16_t, std::string> port_of(const char* name, const std::string& text) {
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
    const auto port = port_of("GRADMON_STORE", given.substr(colon + 1));
    if (!port) return tl::unexpected(port.error());
    environment.store = StorePlace{given.substr(0, colon), *port};
    return {};
  }
  // Training's own variables are its own matter: what is wrong with them is no error of ours.
  const std::string host = lookup("MASTER_ADDR").value_or("");
  const auto port = port_of("MASTER_PORT", lookup("MASTER_PORT").value_or(""));
  if (!host.empty() && port) environment.store = StorePlace{host, *port};
  return {};
}

std::string launcher_id(const Lookup& lookup) {
  const auto given = [&](const char* name) {
    auto value = lookup(name);
    return value && !value->empty() && lower(*value) != "none" ? value : std::nullopt;
  };
  if (auto id = given("GRADMON_RUN_ID")) return *id;
  if (auto id = given("TORCHELASTIC_RUN_ID"))
    return *id + "." + given("TORCHELASTIC_RESTART_COUNT").value_or("0");
  if (auto id = given("SLURM_JOB_ID")) return *id + "." + given("SLURM_STEP_ID").value_or("0");
  if (auto address = given("MASTER_ADDR")) {
    const std::string place = *address + ":" + given("MASTER_PORT").value_or("");
    const auto local = given("LOCAL_WORLD_SIZE");
    const bool several_hosts = local && local != lookup("WORLD_SIZE");
    if (several_hosts) return place;
    // The same address and port serve launch after launch; the launcher's start tells them apart.
    return place + ":" + std::to_string(process_start_of(getppid()));
  }
  return "";
}

}  // namespace

std::optional<std::string> from_process(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

tl::expected<Environment, std::string> read_environment(const Lookup& lookup) {
  Environment environment;
  if (auto placed = read_place(lookup, environment); !placed) return tl::unexpected(placed.error());
  if (auto read = read_store(lookup, environment); !read) return tl::unexpected(read.error());
  environment.launcher_id = launcher_id(lookup);
  environment.dynamic = lower(lookup("DYNAMIC_MONITOR").value_or("")) == "true";
  environment.output_dir = lookup("MONITOR_OUTPUT_DIR").value_or("");
  if (environment.output_dir.empty()) environment.output_dir = "./monitor_output";
  if (auto endpoint = lookup("GRADMON_ENDPOINT"); endpoint && !endpoint->empty())
    environment.endpoint = endpoint;
  if (auto keys = lookup("GRADMON_KEYS"); keys && !keys->empty())
    environment.keys = std::filesystem::absolute(*keys);
  if (lookup("GRADMON_INSECURE_LOOPBACK").value_or("") == "1")
    environment.loopback = InsecureLoopback::allowed;
  return environment;
}

}  // namespace gradmon
