// SPDX-License-Identifier: Apache-2.0
#include "control/net/strangers.h"

#include <utility>

namespace gradmon {
namespace {

constexpr Ticks kForgottenAfter{10'000};
constexpr std::size_t kMostNamed = 16;
constexpr std::size_t kMostOfAName = 100;

}  // namespace

Strangers::Strangers(std::string epoch, std::string launcher_id)
    : epoch_(std::move(epoch)), launcher_id_(std::move(launcher_id)) {}

std::string Strangers::name_of(const Letter& letter) const {
  const std::string rank = "rank " + std::to_string(letter.rank.value);
  if (const auto* hello = std::get_if<Hello>(&letter.message)) {
    if (hello->launcher_id == launcher_id_) return "";
    return rank + " of another launch (\"" + hello->launcher_id.substr(0, kMostOfAName) + "\", pid " +
           std::to_string(hello->pid) + " on " + hello->host.substr(0, kMostOfAName) + ") asks to join";
  }
  if (letter.epoch == epoch_) return "";
  return rank + " of an earlier launch (epoch " + letter.epoch.substr(0, 8) + ") still runs";
}

std::optional<std::string> Strangers::hear(const Letter& letter, Ticks now) {
  std::string name = name_of(letter);
  if (name.empty()) return {};
  const auto known = last_heard_.find(name);
  if (known != last_heard_.end()) {
    known->second = now;
    return {};
  }
  if (last_heard_.size() >= kMostNamed) return {};
  last_heard_[name] = now;
  return name;
}

std::vector<std::string> Strangers::heard(Ticks now) const {
  std::vector<std::string> lines;
  for (const auto& [name, last] : last_heard_) {
    if (now - last < kForgottenAfter) lines.push_back(name);
  }
  return lines;
}

}  // namespace gradmon
