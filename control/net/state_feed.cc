// SPDX-License-Identifier: Apache-2.0
#include "control/net/state_feed.h"

#include <stdexcept>
#include <utility>
#include <variant>

#include "control/net/bus.h"
#include "control/net/messages.h"

namespace gradmon {

StateFeed::StateFeed(const std::string& state_endpoint, std::optional<ClientKeys> keys) {
  auto bus = Bus::hear({kMostBytesDown}, std::move(keys));
  if (!bus) throw std::runtime_error(bus.error());
  bus_ = std::move(*bus);
  if (auto connected = bus_->connect(state_endpoint); !connected) throw std::runtime_error(connected.error());
}

StateFeed::~StateFeed() = default;

std::optional<Status> StateFeed::next(std::chrono::milliseconds timeout) {
  const auto incoming = bus_->poll(timeout, -1);
  if (!incoming) return {};
  auto frame = decode_frame(incoming->bytes);
  auto* status = frame ? std::get_if<Status>(&*frame) : nullptr;
  return status != nullptr ? std::optional<Status>(std::move(*status)) : std::nullopt;
}

}  // namespace gradmon
