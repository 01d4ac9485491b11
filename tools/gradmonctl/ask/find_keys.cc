// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/find_keys.h"

#include <filesystem>

#include "control/host/environment.h"
#include "control/hub/transport/bus.h"

namespace gradmon {
namespace {

std::string usual_directory(const std::string& endpoint) {
  if (environment_text("GRADMON_INSECURE_LOOPBACK") == "1" && is_loopback(endpoint)) return "";
  const std::string home = environment_text("HOME");
  std::string base = environment_text("XDG_CONFIG_HOME");
  if (base.empty() && !home.empty()) base = home + "/.config";
  if (base.empty()) return "";
  const std::string directory = base + "/gradmon/keys";
  std::error_code error;
  return std::filesystem::is_directory(directory, error) ? directory : "";
}

}  // namespace

std::string key_directory(const JobSelector& selector, const std::string& endpoint) {
  const std::string directory = selector.keys.empty() ? environment_text("GRADMON_KEYS") : selector.keys;
  return directory.empty() ? usual_directory(endpoint) : directory;
}

tl::expected<std::optional<ClientKeys>, std::string> find_keys(const JobSelector& selector,
                                                               const std::string& endpoint) {
  if (!is_tcp(endpoint)) return std::optional<ClientKeys>{};
  const std::string directory = key_directory(selector, endpoint);
  if (directory.empty()) return std::optional<ClientKeys>{};
  auto keys = read_operator_keys(directory);
  if (!keys) return tl::unexpected(keys.error());
  return std::optional<ClientKeys>(std::move(*keys));
}

}  // namespace gradmon
