// SPDX-License-Identifier: Apache-2.0
#include "control/hub/lead.h"

#include <algorithm>
#include <cctype>

#include "control/host/child_process.h"
#include "control/host/unix_stream.h"
#include "control/log.h"

namespace gradmon {

std::optional<std::string> DroppedMessages::count(const std::string& why, Clock::time_point now) {
  dropped_ += 1;
  last_why_ = why;
  if (last_reported_ && now - *last_reported_ < std::chrono::minutes(1)) return {};
  last_reported_ = now;
  return warning();
}

std::string DroppedMessages::warning() const {
  if (dropped_ == 0) return "";
  return std::to_string(dropped_) + (dropped_ == 1 ? " message" : " messages") +
         " from the network dropped; the last: " + last_why_;
}

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

Client hub_client(const KeyBytes& key) { return {"hub." + to_z85(key).substr(0, 8), Role::control}; }

}  // namespace

LeadEndpoint::LeadEndpoint(Introduction introduction, fs::path key_file, std::shared_ptr<Mailbox> mailbox,
                           LocalPeers& peers)
    : introduction_(std::move(introduction)),
      key_file_(std::move(key_file)),
      mailbox_(std::move(mailbox)),
      peers_(peers),
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
Result<void> LeadEndpoint::listen_as_before() {
  const auto kept = introduction_.keys.empty() ? hub_keys_in(key_file_) : Result<HubKeys>();
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
  resolver_->post([this, mailbox = mailbox_, master = introduction_.master_addr, loopback] {
    mailbox->post([this, address = local_address_towards(master, loopback)] {
      resolving_ = false;
      const bool v6 = address.find(':') != std::string::npos;
      if (address.empty()) return fail("this host has no address that other hosts could reach");
      auto listening = listen("tcp://" + (v6 ? "[" + address + "]" : address) + ":*");
      if (!listening) fail(listening.error());
    });
  });
}

Result<std::optional<ServerKeys>> LeadEndpoint::keys_for(const std::string& endpoint) {
  if (!introduction_.keys.empty()) {
    auto keys = read_server_keys(introduction_.keys);
    if (!keys) return tl::unexpected("refusing to listen on \"" + endpoint + "\": " + keys.error());
    return std::optional(std::move(*keys));
  }
  if (introduction_.insecure_loopback && is_loopback(endpoint)) return std::optional<ServerKeys>();
  if (!generated_keys_) {
    auto own = hub_keys_in(key_file_);
    if (!own) return tl::unexpected(own.error());
    generated_keys_ = std::move(*own);
  }
  ServerKeys keys{SecretKey(generated_keys_->secret.bytes()), {}};
  for (const KeyBytes& key : generated_keys_->admitted) keys.clients.emplace(key, hub_client(key));
  return std::optional(std::move(keys));
}

Result<void> LeadEndpoint::listen(const std::string& endpoint) {
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
  key_disk_->watch([this, mailbox = mailbox_, directory = introduction_.keys] {
    const auto file = std::make_shared<AllowListFile>(directory);
    return DiskThread::Watch{[] { return -1; }, [] { return kLookAtKeysEvery; },
                             [this, mailbox, file] {
                               auto clients = file->look();
                               if (!clients) return;
                               mailbox->post([this, now = std::move(*clients)] { allow_only(now); });
                             }};
  });
}

void LeadEndpoint::allow_only(Result<AllowList> clients) {
  if (!clients) return log_error("the list of clients is unchanged: " + clients.error());
  if (!bus_) return;
  for (const auto& [key, hub] : hubs_) clients->insert_or_assign(key, hub);
  bus_->allow_only(std::move(*clients));
}

void LeadEndpoint::save_keys() {
  if (!generated_keys_) return;
  if (auto kept = save_hub_keys(key_file_, *generated_keys_); !kept)
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
  peers_.ask_store({bus_ ? to_text(entry) : "", {}});
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
    if (auto own = hub_keys_in(key_file_)) generated_keys_ = std::move(*own);
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

namespace {

constexpr std::size_t kMostRoutes = 100'000;
constexpr int kMostFromRelaysInATurn = 1000;
constexpr std::chrono::seconds kEntryEvery{2};
constexpr milliseconds kEntryEveryAtFirst{250};  // while ranks of other hosts are missing
constexpr std::chrono::seconds kDiscoveryPhase{60};
constexpr milliseconds kDrainWithin{2000};  // after this time the job's entry stays
// A job with an older entry has ended. Longer than a hang of a disk.
constexpr std::chrono::hours kRunningWithin{24};
constexpr char kRemote = 'b';  // the first character of `peer` for a client of another host

// Bounded: a full table starts anew, because ranks repeat a Hello and send Progress each second.
template <class Key>
void route(std::map<Key, std::string>& routes, const Key& key, const std::string& peer) {
  if (routes.size() >= kMostRoutes && routes.count(key) == 0) routes.clear();
  routes[key] = peer;
}

// True for commands that change the job, or make every rank do work.
bool needs_control(CommandVerb verb) {
  const auto reads = {CommandVerb::status, CommandVerb::history, CommandVerb::verdict, CommandVerb::config,
                      CommandVerb::alerts};
  return std::find(reads.begin(), reads.end(), verb) == reads.end();
}

// The reason why a client without the role control may not do `what`.
std::string role_objection(const Bus::Incoming& from, const char* what) {
  return "client \"" + from.client + "\" may read, not " + what + " (its role in clients.allow is read)";
}

// Removes old output of ended jobs beside the output of the job of this epoch.
void remove_old_output(const std::string& output_dir, const std::string& epoch) {
  for (const std::string& launch : remove_old_entries(output_dir)) remove_notes(output_dir, launch);
  std::set<std::string> running{epoch};
  for (JobEntry& job : read_entries(output_dir, kRunningWithin)) running.insert(std::move(job.epoch));
  remove_old_histories(output_dir, running);
}

}  // namespace

Lead::Lead(const Introduction& introduction, Settings settings, LocalPeers& peers)
    : settings_(std::move(settings)),
      peers_(peers),
      publisher_({settings_.publisher, settings_.directory.alerts()}),
      endpoint_(introduction, settings_.directory.keys(), settings_.mailbox, peers),
      notes_seen_(std::make_shared<std::set<std::string>>()),
      begun_(Clock::now()),
      last_turn_(begun_) {
  JobIdentity identity{random_hex(16), random_hex(4), wall_now(), introduction.launch_id};
  std::vector<LogEntry> restored;
  if (auto opened = DecisionFile::open(settings_.directory.decisions(), identity)) {
    identity = std::move(opened->identity);
    restored = std::move(opened->entries);
    decisions_ = opened->file.get();
    log_ = std::move(opened->file);
  } else {
    log_error("no decision log: " + opened.error());
    log_trouble_ = opened.error();
    log_ = std::make_unique<NullDecisionLog>();
  }
  identity.world_size = introduction.world_size;
  HubJob job{identity, introduction.output_dir, *introduction.lead_job};
  service_ = std::make_unique<JobService>(
      std::move(job), JobResources{config_disk_, run_disk_, *log_, settings_.mailbox, *this});
  service_->open(restored);
  run_disk_.post([own = settings_.directory, bases = job_bases(), output = introduction.output_dir,
                  epoch = identity.epoch] {
    remove_old_jobs(own, bases);
    remove_old_output(output, epoch);
  });
}

Lead::~Lead() = default;

void Lead::on_envelope(Envelope envelope) {
  const int rank = envelope.rank.value;
  if (rank >= 0 && rank < service_->job().world_size) heard_.insert(rank);
  service_->on_message(envelope);
}

void Lead::add_to(std::vector<pollfd>& polled) const {
  if (endpoint_.bus() != nullptr) endpoint_.bus()->add_to(polled);
}

void Lead::turn(Clock::time_point now) {
  if (Bus* bus = endpoint_.bus()) take_messages(*bus);
  service_->tick(std::chrono::duration_cast<Ticks>(now - last_turn_));
  // Keeps the fraction of a millisecond for the next turn.
  last_turn_ += std::chrono::duration_cast<Ticks>(now - last_turn_);
  endpoint_.retry();
  discover_hubs(now);
  flush();
}

// Takes a limited number of messages, so that a flood does not block the rest of the hub's turn.
void Lead::take_messages(Bus& bus) {
  bus.maintain_connections();
  for (int i = 0; i < kMostFromRelaysInATurn; ++i) {
    const auto incoming = bus.poll(milliseconds{0}, -1);
    if (!incoming) return;
    on_bytes(*incoming);
  }
  settings_.mailbox->wake();  // More may wait.
}

void Lead::drop(const std::string& why) {
  if (const auto line = dropped_.count(why, Clock::now())) log_warn(*line);
}

void Lead::on_bytes(const Bus::Incoming& incoming) {
  if (!incoming.whole) return drop("a message of several frames");
  if (!incoming.admitted) return drop("message from a key removed from clients.allow");
  auto frame = decode_frame(incoming.bytes);
  if (!frame) return drop(frame.error());
  if (auto* command = std::get_if<Command>(&*frame)) {
    // The key proves the first name; the client itself claims the rest.
    if (!incoming.client.empty()) command->by = incoming.client + ", " + command->by;
    if (incoming.role != Role::control && needs_control(command->verb)) {
      const CommandReply refused =
          failed_reply(CommandOutcome::not_allowed, role_objection(incoming, "command"));
      service_->refuse(*command, refused.message);
      endpoint_.bus()->send(incoming.peer, encode(Frame(AddressedReply{command->request_id, refused})));
      return;
    }
    return service_->on_command(kRemote + incoming.peer, std::move(*command));
  }
  auto* bundles = std::get_if<Bundles>(&*frame);
  if (bundles == nullptr) return drop("unexpected message type: a reply that no request asked for");
  if (incoming.role != Role::control) return drop(role_objection(incoming, "be a rank"));
  for (Bundle& bundle : *bundles) on_remote_bundle(incoming.peer, std::move(bundle));
}

void Lead::on_remote_bundle(const std::string& peer, Bundle bundle) {
  for (Envelope& envelope : to_envelopes(std::move(bundle))) {
    if (const auto* hello = std::get_if<Hello>(&envelope.message)) {
      route(hello_peers_, hello->process_id, peer);
    } else if (envelope.epoch != service_->job().epoch) {
      // The message of an earlier launch gets no answer.
    } else if (std::holds_alternative<Disconnected>(envelope.message)) {
      rank_peers_.erase({envelope.rank.value, envelope.incarnation});
    } else {
      // After a lost connection or a restart, the same hub is another peer.
      route(rank_peers_, {envelope.rank.value, envelope.incarnation}, peer);
    }
    on_envelope(std::move(envelope));
  }
}

// The turn's end sends messages to other hosts, in one frame per hub for all of its ranks.
void Lead::send(Outgoing outgoing) {
  const auto* welcome = std::get_if<Welcome>(&outgoing.message);
  std::map<std::string, Outgoing::To> by_peer;
  Outgoing::To local;
  for (const auto& address : outgoing.to) {
    std::string peer;
    if (welcome != nullptr) {
      const auto found = hello_peers_.find(welcome->process_id);
      if (found != hello_peers_.end()) peer = found->second;
      if (!peer.empty() && welcome->refused.empty()) route(rank_peers_, address, peer);
    } else if (const auto found = rank_peers_.find(address); found != rank_peers_.end()) {
      peer = found->second;
    }
    (peer.empty() ? local : by_peer[peer]).push_back(address);
  }
  Bundle bundle{service_->job().epoch, {}, std::move(outgoing.message)};
  for (auto& [peer, to] : by_peer) {
    bundle.to = std::move(to);
    hub_recipients_[peer].push_back(bundle);
  }
  if (local.empty()) return;
  bundle.to = std::move(local);
  peers_.deliver(bundle);
}

void Lead::flush() {
  for (auto& [peer, bundles] : std::exchange(hub_recipients_, {})) {
    for (const std::string& frame : encode_bundles(std::move(bundles))) {
      if (Bus* bus = endpoint_.bus()) bus->send(peer, frame);
    }
  }
}

void Lead::reply(const std::string& peer, const std::string& request_id, CommandReply reply) {
  if (reply.status) add_own_part(*reply.status);
  const std::string frame = encode(Frame(AddressedReply{request_id, std::move(reply)}));
  if (peer.front() != kRemote) return peers_.answer(peer, frame);
  if (Bus* bus = endpoint_.bus()) bus->send(peer.substr(1), frame);
}

void Lead::publish(const std::vector<Alert>& alerts) {
  publisher_.tend(Clock::now(), true);
  publisher_.publish(alerts);
}

JobEntry Lead::entry() const {
  const HubJob& job = service_->job();
  JobEntry entry;
  entry.epoch = job.epoch;
  entry.launch_id = job.launch_id;
  entry.name = job.lead.name;
  entry.host = host_name();
  entry.endpoint = ipc_endpoint(settings_.directory.socket());
  entry.started = job.started;
  endpoint_.describe(entry);
  return entry;
}

void Lead::discover_hubs(Clock::time_point now) {
  const bool complete = heard_.size() >= static_cast<std::size_t>(service_->job().world_size);
  const bool looks = endpoint_.discovers_hubs() && !complete;
  if (looks) endpoint_.look_in_store(now, entry());
  const Clock::duration pace =
      looks && now - begun_ < kDiscoveryPhase ? Clock::duration(kEntryEveryAtFirst) : kEntryEvery;
  if (now - last_entry_ < pace || refreshing_entry_) return;
  last_entry_ = now;
  refresh_entry();
}

// If another hub has replaced this hub's entry, and rank 0 is not connected here, that hub is the lead.
void Lead::refresh_entry() {
  refreshing_entry_ = true;
  run_disk_.post([this, mailbox = settings_.mailbox, output_dir = service_->job().output_dir, job = entry(),
                  yields = entry_kept_ && !peers_.has_rank0(), seen = notes_seen_,
                  reads = endpoint_.discovers_hubs()] {
    const auto there = yields ? find_entry(output_dir, job.launch_id) : std::nullopt;
    const bool superseded = there && there->epoch != job.epoch;
    const auto kept = superseded ? Result<void>() : write_entry(output_dir, job);
    auto notes = reads ? read_new_notes(output_dir, job.launch_id, *seen) : std::vector<HubNote>();
    mailbox->post([this, superseded, kept, notes = std::move(notes)] {
      refreshing_entry_ = false;
      entry_kept_ = entry_kept_ || kept;
      superseded_ = superseded;
      if (!kept) log_debug("entry: " + kept.error());
      endpoint_.admit(notes);
    });
  });
}

Status Lead::status() const {
  Status status = service_->status();
  add_own_part(status);
  return status;
}

void Lead::add_own_part(Status& status) const {
  const std::string refusals = endpoint_.bus() != nullptr ? endpoint_.bus()->refusals() : "";
  for (const std::string& line : {endpoint_.trouble(), log_trouble_, refusals, dropped_.warning()}) {
    if (!line.empty()) status.warnings.push_back(line);
  }
  for (std::string& line : publisher_.warnings()) status.warnings.push_back(std::move(line));
  status.alerts_endpoint = publisher_.endpoint();
}

void Lead::restore_files(Clock::time_point now) {
  publisher_.tend(now, service_->has_alert_rules());
  if (decisions_ == nullptr || decisions_->is_at_its_path()) return;
  const auto relinked = decisions_->relink();
  log_trouble_ = relinked ? "" : "decision log: " + relinked.error();
  if (relinked) log_warn("the decision log was removed: writing a new one");
}

void Lead::hand_over(const JobDirectory& directory) const {
  if (decisions_ == nullptr) return;
  const auto copied = decisions_->copy_to(directory.decisions());
  if (!copied) log_warn("a new epoch begins: " + copied.error());
}

void Lead::close() {
  service_->close();
  publisher_.close();
  run_disk_.post([output_dir = service_->job().output_dir, job = entry(), superseded = superseded_] {
    remove_entry(output_dir, job);
    if (!superseded) remove_notes(output_dir, job.launch_id);
  });
  run_disk_.drain(kDrainWithin);
}

}  // namespace gradmon
