// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/foreign_peers.h"

#include <iterator>
#include <utility>

namespace gradmon {
namespace {

constexpr Ticks kForgottenAfter{10'000};
constexpr std::size_t kMostNamed = 16;
constexpr std::size_t kMostOfAName = 100;

}  // namespace

ForeignPeers::ForeignPeers(std::string epoch, std::string launch_id)
    : epoch_(std::move(epoch)), launch_id_(std::move(launch_id)) {}

std::string ForeignPeers::name_of(const Envelope& envelope) const {
  const std::string rank = "rank " + std::to_string(envelope.rank.value);
  if (const auto* hello = std::get_if<Hello>(&envelope.message)) {
    if (hello->launch_id == launch_id_) return "";
    return rank + " of another launch (\"" + hello->launch_id.substr(0, kMostOfAName) + "\", pid " +
           std::to_string(hello->pid) + " on " + hello->host.substr(0, kMostOfAName) + ") asks to join";
  }
  // A sender without an epoch has not joined any launch.
  if (envelope.epoch == epoch_ || envelope.epoch.empty()) return "";
  return rank + " of an earlier launch (epoch " + envelope.epoch.substr(0, 8) + ") still runs";
}

std::optional<std::string> ForeignPeers::hear(const Envelope& envelope, Ticks now) {
  std::string name = name_of(envelope);
  if (name.empty()) return {};
  const auto known = last_heard_.find(name);
  if (known != last_heard_.end()) {
    known->second = now;
    return {};
  }
  if (last_heard_.size() >= kMostNamed) forget_silent(now);
  if (last_heard_.size() >= kMostNamed) return {};
  last_heard_[name] = now;
  return name;
}

void ForeignPeers::forget_silent(Ticks now) {
  for (auto peer = last_heard_.begin(); peer != last_heard_.end();)
    peer = now - peer->second < kForgottenAfter ? std::next(peer) : last_heard_.erase(peer);
}

std::vector<std::string> ForeignPeers::heard(Ticks now) const {
  std::vector<std::string> lines;
  for (const auto& [name, last] : last_heard_) {
    if (now - last < kForgottenAfter) lines.push_back(name);
  }
  return lines;
}

}  // namespace gradmon
