// SPDX-License-Identifier: Apache-2.0
#include "control/net/open_bus.h"

#include <algorithm>

#include "control/log.h"
#include "control/net/messages.h"

namespace gradmon {
namespace {

// Beside the ranks; an idle one is thrown out after two seconds.
constexpr std::size_t kMostStrangers = 1000;

std::string state_endpoint_beside(const std::string& endpoint) {
  if (is_tcp(endpoint)) return endpoint.substr(0, endpoint.rfind(':')) + ":*";
  return endpoint + ".state";
}

}  // namespace

tl::expected<std::unique_ptr<Bus>, std::string> listening_bus(const AgentOptions& options,
                                                              const std::string& endpoint) {
  std::optional<ServerKeys> keys;
  if (is_tcp(endpoint) && options.keys) {
    auto found = read_server_keys(*options.keys);
    if (!found) return tl::unexpected("refusing to listen on \"" + endpoint + "\": " + found.error());
    keys = std::move(*found);
  }
  const Bus::Limits limits{kMostBytesUp, static_cast<std::size_t>(options.world_size) + kMostStrangers};
  return Bus::listen(endpoint, state_endpoint_beside(endpoint), options.loopback, limits, std::move(keys));
}

tl::expected<std::unique_ptr<Bus>, std::string> asking_bus(const AgentOptions& options) {
  std::optional<ClientKeys> keys;
  const bool needless = options.endpoint && !is_tcp(*options.endpoint);
  if (options.keys && !needless) {
    auto found = read_rank_keys(*options.keys);
    // Where the endpoint turns out to be a Unix socket, none are needed.
    if (!found && options.endpoint) return tl::unexpected(found.error());
    if (!found) log_warn(found.error());
    if (found) keys = std::move(*found);
  }
  return Bus::ask({kMostBytesDown}, std::move(keys));
}

}  // namespace gradmon
