// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/hub_rendezvous.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace gradmon {
namespace {

constexpr std::int64_t kMostHosts = 100'000;

using Notes = tl::expected<std::vector<std::string>, std::string>;

// One host's side of the exchange. Caches the note it has stored and the notes it has read.
class Exchange {
 public:
  Exchange(std::shared_ptr<SharedStore> store, Rank rank) : store_(std::move(store)), rank_(rank) {}

  Notes operator()(const std::string& launch_id, const std::string& own) {
    const std::string place = "gradmon/hubs/" + launch_id;
    if (!own.empty() && own != stored_) {
      auto stored = rank_.value == 0 ? store_->put(place + "/lead", own) : store_numbered(place, own);
      if (!stored) return tl::unexpected(stored.error());
      stored_ = own;
    }
    return rank_.value == 0 ? read_numbered(place) : read_lead(place);
  }

 private:
  tl::expected<void, std::string> store_numbered(const std::string& place, const std::string& own) {
    const auto number = store_->add(place, 1);
    if (!number) return tl::unexpected(number.error());
    return store_->put(place + "/" + std::to_string(*number), own);
  }

  Notes read_lead(const std::string& place) {
    auto entry = store_->get(place + "/lead");
    if (!entry) return tl::unexpected(entry.error());
    if (!*entry) return std::vector<std::string>{};
    return std::vector<std::string>{std::move(**entry)};
  }

  // A host takes its number first and stores its note after that; the note may never come.
  Notes read_numbered(const std::string& place) {
    const auto taken = store_->add(place, 0);
    if (!taken) return tl::unexpected(taken.error());
    if (*taken > static_cast<std::int64_t>(read_.size()))
      read_.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(*taken, 0, kMostHosts)));
    for (std::size_t i = 0; i < read_.size(); ++i) {
      if (!read_[i].empty()) continue;
      auto note = store_->get(place + "/" + std::to_string(i + 1));
      if (!note) return tl::unexpected(note.error());
      if (*note) read_[i] = std::move(**note);
    }
    std::vector<std::string> notes;
    std::copy_if(read_.begin(), read_.end(), std::back_inserter(notes),
                 [](const std::string& note) { return !note.empty(); });
    return notes;
  }

  const std::shared_ptr<SharedStore> store_;
  const Rank rank_;
  std::string stored_;             // this host's stored note; "": none yet
  std::vector<std::string> read_;  // notes by number - 1; "": not found yet
};

}  // namespace

RendezvousExchange rendezvous_in_store(std::shared_ptr<SharedStore> store, Rank rank) {
  return [exchange = std::make_shared<Exchange>(std::move(store), rank)](
             const std::string& launch_id, const std::string& own) { return (*exchange)(launch_id, own); };
}

}  // namespace gradmon
