// SPDX-License-Identifier: Apache-2.0
#include "control/net/command_client.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "control/net/bus.h"
#include "control/net/messages.h"

namespace gradmon {

struct CommandClient::Connection {
  std::string endpoint;
  std::unique_ptr<Bus> bus;
};

CommandClient::CommandClient(const std::string& endpoint, std::optional<ClientKeys> keys)
    : connection_(std::make_unique<Connection>()) {
  connection_->endpoint = endpoint;
  auto bus = Bus::ask({kMostBytesDown}, std::move(keys));
  if (!bus) throw std::runtime_error(bus.error());
  connection_->bus = std::move(*bus);
  if (auto connected = connection_->bus->connect(endpoint); !connected)
    throw std::runtime_error(connected.error());
}

CommandClient::~CommandClient() = default;

tl::expected<CommandReply, std::string> CommandClient::ask(const Command& command,
                                                           std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds repeat_after{1000};
  const auto deadline = Clock::now() + timeout;
  const std::string bytes = encode(Frame(command));
  auto repeat_at = Clock::now();
  for (auto now = Clock::now(); now < deadline; now = Clock::now()) {
    if (now >= repeat_at) {
      connection_->bus->send("", bytes);
      repeat_at = now + repeat_after;
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::min(deadline, repeat_at) - now);
    const auto incoming = connection_->bus->poll(wait, -1);
    if (!connection_->bus->refusal().empty()) {
      CommandReply refused;
      refused.outcome = CommandOutcome::not_allowed;
      refused.message = connection_->endpoint + ": " + connection_->bus->refusal();
      return refused;
    }
    if (!incoming) continue;
    auto frame = decode_frame(incoming->bytes);
    if (!frame) continue;
    auto* answer = std::get_if<AddressedReply>(&*frame);
    if (answer != nullptr && answer->request_id == command.request_id) return std::move(answer->reply);
  }
  const std::string& hint = connection_->bus->hint();
  return tl::unexpected("no answer from " + connection_->endpoint + " within " +
                        std::to_string(timeout.count()) + " ms" + (hint.empty() ? "" : ": " + hint));
}

}  // namespace gradmon
