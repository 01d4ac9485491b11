// SPDX-License-Identifier: Apache-2.0
#include "control/hub/lead_endpoint.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "control/hub/rendezvous/local_address.h"
#include "control/hub/store_polling.h"
#include "control/log.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMostForeign = 1000;  // connections besides those of the job's hubs
constexpr milliseconds kLookAtKeysEvery{2000};
constexpr seconds kRetryInterval{2};

// Readable for people, and unique among the clients.
std::string client_name(const HubNote& note) {
  std::string name = "hub";
  for (const char c : note.host.substr(0, 32))
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return name + "." + note.key.substr(0, 8);
}

Client client_of(const KeyBytes& key) { return {"hub." + to_z85(key).substr(0, 8), Role::control}; }

}  // namespace

LeadEndpoint::LeadEndpoint(Introduction introduction, Host host)
    : introduction_(std::move(introduction)),
      host_(std::move(host)),
      opened_(Clock::now()),
      next_ask_(opened_ + store_poll_delay(introduction_.several_hosts)) {
  if (is_tcp(introduction_.endpoint) || (introduction_.world_size > 1 && introduction_.several_hosts == true))
    open();
}

void LeadEndpoint::fail(std::string why) {
  if (trouble_ != why) log_error(why);
  trouble_ = std::move(why);
}

// Listens on the last endpoint of this hub's earlier process, because other hubs may know that endpoint.
tl::expected<void, std::string> LeadEndpoint::listen_as_before() {
  const auto kept =
      introduction_.keys.empty() ? hub_keys_in(host_.key_file) : tl::expected<HubKeys, std::string>();
  const bool any_port = !is_tcp(introduction_.endpoint) || introduction_.endpoint.back() == '*';
  if (kept && any_port && !kept->endpoint.empty()) return listen(kept->endpoint);
  return tl::unexpected(std::string("it has not listened before"));
}

void LeadEndpoint::open() {
  const auto now = Clock::now();
  if (bus_ || resolving_ || now < next_try_) return;
  next_try_ = now + kRetryInterval;
  if (listen_as_before()) return;
  if (!is_tcp(introduction_.endpoint)) return resolve_and_listen();
  if (auto listening = listen(introduction_.endpoint); !listening) fail(listening.error());
}

void LeadEndpoint::resolve_and_listen() {
  resolving_ = true;
  if (!resolver_) resolver_ = std::make_unique<DiskThread>("gradmon-find");
  // Containers of one host share its network if training's address is loopback.
  const Loopback loopback = introduction_.several_hosts == false ? Loopback::accepted : Loopback::refused;
  resolver_->post([this, mailbox = host_.mailbox, master = introduction_.master_addr, loopback] {
    mailbox->post([this, address = local_address_towards(master, loopback)] {
      resolving_ = false;
      const bool v6 = address.find(':') != std::string::npos;
      if (address.empty()) return fail("this host has no address that other hosts could reach");
      auto listening = listen("tcp://" + (v6 ? "[" + address + "]" : address) + ":*");
      if (!listening) fail(listening.error());
    });
  });
}

tl::expected<std::optional<ServerKeys>, std::string> LeadEndpoint::keys_for(const std::string& endpoint) {
  if (!introduction_.keys.empty()) {
    auto keys = read_server_keys(introduction_.keys);
    if (!keys) return tl::unexpected("refusing to listen on \"" + endpoint + "\": " + keys.error());
    return std::optional(std::move(*keys));
  }
  if (introduction_.insecure_loopback && is_loopback(endpoint)) return std::optional<ServerKeys>();
  if (!generated_keys_) {
    auto own = hub_keys_in(host_.key_file);
    if (!own) return tl::unexpected(own.error());
    generated_keys_ = std::move(*own);
  }
  ServerKeys keys{SecretKey(generated_keys_->secret.bytes()), {}};
  for (const KeyBytes& key : generated_keys_->admitted) keys.clients.emplace(key, client_of(key));
  return std::optional(std::move(keys));
}

tl::expected<void, std::string> LeadEndpoint::listen(const std::string& endpoint) {
  auto keys = keys_for(endpoint);
  if (!keys) return tl::unexpected(keys.error());
  public_key_ = *keys ? to_z85((*keys)->secret.public_key()) : "";
  const Bus::Limits limits{kMaxFrameBytes, static_cast<std::size_t>(introduction_.world_size) + kMostForeign};
  const auto loopback =
      introduction_.insecure_loopback ? InsecureLoopback::allowed : InsecureLoopback::refused;
  auto bus = Bus::make_server(endpoint, loopback, limits, std::move(*keys));
  if (!bus) return tl::unexpected(bus.error());
  bus_ = std::move(*bus);
  for (const auto& [key, hub] : hubs_) bus_->allow(key, hub);
  if (!introduction_.keys.empty()) follow_allow_list();
  trouble_.clear();
  log_info("listening for other hosts at " + bus_->endpoint());
  if (generated_keys_) generated_keys_->endpoint = bus_->endpoint();
  save_keys();
  return {};
}

// Polls the file, because a file system may send no events.
void LeadEndpoint::follow_allow_list() {
  if (!key_disk_) key_disk_ = std::make_unique<DiskThread>("gradmon-keys");
  key_disk_->watch([this, mailbox = host_.mailbox, directory = introduction_.keys] {
    const auto file = std::make_shared<AllowListFile>(directory);
    return DiskThread::Watch{[] { return -1; }, [] { return kLookAtKeysEvery; },
                             [this, mailbox, file] {
                               auto clients = file->look();
                               if (!clients) return;
                               mailbox->post([this, now = std::move(*clients)] { allow_only(now); });
                             }};
  });
}

void LeadEndpoint::allow_only(tl::expected<AllowList, std::string> clients) {
  if (!clients) return log_error("the list of clients is unchanged: " + clients.error());
  if (!bus_) return;
  for (const auto& [key, hub] : hubs_) clients->insert_or_assign(key, hub);
  bus_->allow_only(std::move(*clients));
}

void LeadEndpoint::save_keys() {
  if (!generated_keys_) return;
  if (auto kept = save_hub_keys(host_.key_file, *generated_keys_); !kept)
    log_warn("keys of this hub: " + kept.error());
}

void LeadEndpoint::describe(JobEntry& entry) const {
  entry.address = bus_ ? bus_->endpoint() : "";
  entry.key = bus_ ? public_key_ : "";
  entry.trouble = trouble_;
}

void LeadEndpoint::look_in_store(Clock::time_point now, const JobEntry& entry) {
  const auto interval = store_poll_interval(now - opened_);
  if (now < next_ask_ || !interval) return;
  next_ask_ = now + *interval;
  host_.ask_store({bus_ ? to_text(entry) : "", {}});
}

void LeadEndpoint::on_store_notes(const std::vector<std::string>& texts) {
  std::vector<HubNote> notes;
  for (const std::string& text : texts) {
    if (auto note = parse_note(text, introduction_.launch_id)) notes.push_back(std::move(*note));
  }
  admit(std::move(notes));
}

void LeadEndpoint::admit(std::vector<HubNote> notes) {
  if (notes.empty() || !discovers_hubs()) return;
  if (!generated_keys_ && introduction_.keys.empty()) {
    if (auto own = hub_keys_in(host_.key_file)) generated_keys_ = std::move(*own);
  }
  // This hub may have left a note itself before rank 0 came.
  const std::string own = generated_keys_ ? to_z85(generated_keys_->secret.public_key()) : "";
  notes.erase(
      std::remove_if(notes.begin(), notes.end(), [&](const HubNote& note) { return note.key == own; }),
      notes.end());
  if (notes.empty()) return;
  if (!bus_ && !is_tcp(introduction_.endpoint)) open();
  const std::size_t most = static_cast<std::size_t>(introduction_.world_size) + kMostForeign;
  bool fresh = false;
  for (const HubNote& note : notes) {
    KeyBytes key{};
    if (note.key.size() != kKeyText || from_z85(note.key, key)) continue;
    if (hubs_.size() >= most || !hubs_.emplace(key, Client{client_name(note), Role::control}).second)
      continue;
    if (bus_) bus_->allow(key, hubs_[key]);
    if (generated_keys_) fresh = generated_keys_->admitted.insert(key).second || fresh;
  }
  if (fresh) save_keys();
}

}  // namespace gradmon
