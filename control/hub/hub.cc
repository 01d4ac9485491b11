// SPDX-License-Identifier: Apache-2.0
#include "control/hub/hub.h"

#include <poll.h>
#include <unistd.h>

#include "control/files/descriptor.h"
#include "control/host/unix_stream.h"
#include "control/log.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBusyTurn{10};
constexpr milliseconds kIdleTurn{500};
constexpr milliseconds kDirectoryCheckInterval{1000};
constexpr milliseconds kStateEvery{500};
constexpr milliseconds kStateEveryWhenIdle{1000};
constexpr std::chrono::minutes kRefusedLineEvery{1};  // other users must not fill the log
constexpr milliseconds kFirstRankTimeout{10'000};     // the hub ends if no rank comes within this time
constexpr milliseconds kLingerAfterLastRank{1'000};   // for a new rank after the last has gone
constexpr std::size_t kMostRanks = 16'384;
constexpr int kMostLockTries = 30;
constexpr int kLargestWorld = 1 << 17;                     // bounded: the lead keeps a list of all ranks
constexpr std::size_t kMostBytesOfARank = kMaxFrameBytes;  // a `set` with a config, a Hello with a plan

std::string name_of(Peer peer) { return "u" + std::to_string(peer.value); }
Peer parse_peer(const std::string& name) { return {std::stoull(name.substr(1))}; }

// Retries, because a killed hub holds its lock a moment longer than its connections.
tl::expected<HubLock, HubLock::Failure> take_lock(const JobDirectory& directory) {
  for (int tries = 0;; ++tries) {
    auto lock = HubLock::acquire(directory);
    if (lock || lock.error().kind != HubLock::Failure::Kind::taken || tries == kMostLockTries) return lock;
    if (Descriptor(connect_unix(directory.socket()).value_or(-1)).valid()) return lock;  // It lives.
    ::poll(nullptr, 0, static_cast<int>(kBusyTurn.count()));
  }
}

}  // namespace

Hub::Hub(JobDirectory directory, std::string launch_id, HubLock lock, std::unique_ptr<StreamServer> server,
         fs::path publisher)
    : launch_id_(std::move(launch_id)),
      mailbox_(std::make_shared<Mailbox>()),
      publisher_(std::move(publisher)),
      directory_(std::move(directory)),
      lock_(std::move(lock)),
      server_(std::move(server)),
      idle_since_(Clock::now()),
      last_look_(Clock::now()) {}

Hub::~Hub() = default;

tl::expected<std::unique_ptr<Hub>, HubLock::Failure> Hub::open(JobDirectory directory, std::string launch_id,
                                                               fs::path publisher) {
  auto lock = take_lock(directory);
  if (!lock) return tl::unexpected(lock.error());
  StreamServer::Limits limits;
  limits.most_connections = kMostRanks;
  auto server = StreamServer::listen(directory.socket(), limits);
  if (!server) return tl::unexpected(HubLock::Failure{HubLock::Failure::Kind::error, server.error()});
  return std::unique_ptr<Hub>(new Hub(std::move(directory), std::move(launch_id), std::move(*lock),
                                      std::move(*server), std::move(publisher)));
}

void Hub::run() {
  while (!finished()) turn(lead_ && lead_->service().busy() ? kBusyTurn : kIdleTurn);
  clean_up();
}

void Hub::turn(milliseconds at_most) {
  std::vector<pollfd> polled{{mailbox_->fd(), POLLIN, 0}};
  server_->add_to(polled);
  if (lead_) {
    lead_->add_to(polled);
    at_most = lead_->longest_wait(at_most);
  }
  if (relay_) {
    relay_->add_to(polled);
    at_most = relay_->longest_wait(at_most);
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(server_->longest_wait(at_most).count()));
  for (const Mailbox::Task& task : mailbox_->take()) task();
  // First of all: another hub may have taken over during a pause, and then this hub must not renew leases.
  if (Clock::now() - last_look_ >= kDirectoryCheckInterval) check_directory();
  if (replaced_) return;
  server_->handle(polled, {[this](Peer peer, std::string&& bytes) { on_frame(peer, std::move(bytes)); },
                           [this](Peer peer, StreamServer::Closed how, const std::string& reason) {
                             on_closed(peer, how, reason);
                           }});
  const auto now = Clock::now();
  if (lead_) lead_->turn(now);
  if (relay_) relay_->turn(now);
  if (now - last_state_ >= (lead_ && lead_->service().busy() ? kStateEvery : kStateEveryWhenIdle))
    publish_state();
}

void Hub::on_frame(Peer peer, std::string&& bytes) {
  auto frame = decode_frame(bytes);
  if (!frame) return server_->cut(peer, frame.error());
  if (auto* introduction = std::get_if<Introduction>(&*frame)) {
    on_introduction(peer, std::move(*introduction));
  } else if (auto* bundles = std::get_if<Bundles>(&*frame)) {
    for (Bundle& bundle : *bundles) on_bundle(peer, std::move(bundle));
  } else if (auto* command = std::get_if<Command>(&*frame)) {
    on_command(peer, std::move(*command));
  } else if (const auto* notes = std::get_if<StoreNotes>(&*frame)) {
    on_store_notes(peer, *notes);
  } else {
    server_->cut(peer, "unexpected message type: a reply that no request asked for");
  }
}

void Hub::on_introduction(Peer peer, Introduction introduction) {
  if (introduction.launch_id != launch_id_)
    return server_->cut(peer, "launch id " + introduction.launch_id + " does not match this hub's job");
  if (introduction.world_size < 1 || introduction.world_size > kLargestWorld || introduction.rank.value < 0 ||
      introduction.rank.value >= introduction.world_size)
    return server_->cut(peer, "invalid rank " + std::to_string(introduction.rank.value) + " of world size " +
                                  std::to_string(introduction.world_size));
  const auto known = ranks_.find(peer);
  if (known != ranks_.end() && known->second.introduction.rank != introduction.rank)
    return server_->cut(peer, "introduced itself as rank " +
                                  std::to_string(known->second.introduction.rank.value) + " before");
  server_->admit(peer, kMostBytesOfARank);
  const bool leads = introduction.rank.value == 0 && introduction.lead_job;
  if (leads && !rank0_) rank0_ = peer;  // A second process that claims to be rank 0 gets no status.
  if (leads && !lead_) become_lead(introduction);
  LocalPeers& peers = *this;
  if (!lead_ && !relay_) relay_ = std::make_unique<Relay>(introduction, directory_.keys(), mailbox_, peers);
  ranks_[peer].introduction = std::move(introduction);
}

void Hub::become_lead(const Introduction& introduction) {
  LocalPeers& peers = *this;
  lead_ = std::make_unique<Lead>(introduction, Lead::Settings{directory_, publisher_, mailbox_}, peers);
  if (!relay_) return;
  Bundles early = relay_->take_gathered();
  relay_->close();
  relay_.reset();
  for (Bundle& bundle : early) {
    for (Envelope& envelope : to_envelopes(std::move(bundle))) lead_->on_envelope(std::move(envelope));
  }
}

void Hub::on_bundle(Peer peer, Bundle bundle) {
  const auto rank = ranks_.find(peer);
  const bool own = rank != ranks_.end() && bundle.to.size() == 1 &&
                   bundle.to.front().first == rank->second.introduction.rank.value;
  if (!own) return server_->cut(peer, "message for another rank than the one introduced");
  if (const auto* hello = std::get_if<Hello>(&bundle.message)) {
    forget_hello(peer, rank->second.process_id);
    rank->second.process_id = hello->process_id;
    hello_peers_[hello->process_id] = peer;
  }
  if (std::holds_alternative<Left>(bundle.message)) rank->second.left = true;
  if (relay_) return relay_->pass_on(std::move(bundle));
  for (Envelope& envelope : to_envelopes(std::move(bundle))) lead_->on_envelope(std::move(envelope));
}

void Hub::send(Peer peer, const Frame& frame) { static_cast<void>(server_->send(peer, encode(frame))); }

void Hub::answer(const std::string& peer, const std::string& frame) {
  static_cast<void>(server_->send(parse_peer(peer), frame));
}

void Hub::tell_rank0(LogLevel level, const std::string& text) {
  if (rank0_) send(*rank0_, Frame(HubLogLine{level, text}));
}

void Hub::ask_store(const StoreNotes& notes) {
  for (const auto& [peer, rank] : ranks_) {
    if (!rank.introduction.has_store || (lead_ && peer != rank0_)) continue;
    send(peer, Frame(notes));
    return;
  }
}

void Hub::on_store_notes(Peer peer, const StoreNotes& notes) {
  const auto rank = ranks_.find(peer);
  if (rank == ranks_.end() || !rank->second.introduction.has_store)
    return server_->cut(peer, "store notes from a rank without a store");
  if (lead_ && peer == rank0_) lead_->endpoint().on_store_notes(notes.other_notes);
  if (relay_) relay_->on_store_notes(notes.other_notes);
}

void Hub::on_command(Peer peer, Command command) {
  if (lead_) return lead_->service().on_command(name_of(peer), std::move(command));
  if (relay_) return relay_->on_command(name_of(peer), command);
  const CommandReply reply = failed_reply(CommandOutcome::no_lead, "no rank of this job has connected yet");
  send(peer, Frame(AddressedReply{command.request_id, reply}));
}

// An end of file means that the rank's process has gone. After a cut the process may still live: the hub does
// not inform the coordinator, to which the rank is only silent.
void Hub::on_closed(Peer peer, StreamServer::Closed how, const std::string& reason) {
  const auto found = ranks_.find(peer);
  if (found == ranks_.end()) return;
  const LocalRank rank = std::move(found->second);
  ranks_.erase(found);
  if (rank0_ == peer) rank0_.reset();
  idle_since_ = Clock::now();
  forget_hello(peer, rank.process_id);
  const std::pair<int, std::uint64_t> address{rank.introduction.rank.value, rank.incarnation};
  rank_peers_.erase(address);
  const std::string name = "rank " + std::to_string(rank.introduction.rank.value);
  if (how == StreamServer::Closed::cut) return log_warn(name + " is cut off: " + reason);
  if (rank.incarnation == 0) return;
  Bundle gone{rank.epoch, {address}, Disconnected{}};
  if (relay_) return relay_->pass_on(std::move(gone));
  if (lead_) lead_->on_envelope({rank.epoch, rank.introduction.rank, rank.incarnation, Disconnected{}});
}

void Hub::forget_hello(Peer peer, const std::string& process_id) {
  const auto hello = hello_peers_.find(process_id);
  if (hello != hello_peers_.end() && hello->second == peer) hello_peers_.erase(hello);
}

void Hub::deliver(const Bundle& bundle) {
  std::set<Peer> peers;
  for (const auto& address : bundle.to) {
    if (const auto* welcome = std::get_if<Welcome>(&bundle.message)) {
      const auto peer = hello_peers_.find(welcome->process_id);
      if (peer == hello_peers_.end()) {
        // The rank has gone since its Hello; the lead does not know it yet.
        if (relay_ && welcome->refused.empty()) relay_->pass_on({bundle.epoch, {address}, Disconnected{}});
        continue;
      }
      peers.insert(peer->second);
      if (!welcome->refused.empty()) continue;
      if (lead_ && address.first == 0) rank0_ = peer->second;
      if (const auto rank = ranks_.find(peer->second); rank != ranks_.end()) {
        rank_peers_.erase({rank->second.introduction.rank.value, rank->second.incarnation});
        rank->second.epoch = bundle.epoch;
        rank->second.incarnation = address.second;
        rank_peers_[address] = peer->second;
      }
    } else if (const auto peer = rank_peers_.find(address); peer != rank_peers_.end()) {
      peers.insert(peer->second);
    }
  }
  if (peers.empty()) return;
  const std::string frame = encode(Frame(Bundles{bundle}));
  for (const Peer peer : peers) static_cast<void>(server_->send(peer, frame));
}

void Hub::publish_state() {
  last_state_ = Clock::now();
  if (lead_ && rank0_) send(*rank0_, Frame(lead_->status()));
  if (!relay_ || (relay_->trouble().empty() && shown_trouble_.empty())) return;
  Status status;
  status.reason = shown_trouble_ = relay_->trouble();
  for (const auto& [peer, rank] : ranks_) send(peer, Frame(status));
}

void Hub::log_refused() {
  const StreamServer::Refused& refused = server_->refused();
  if (refused.count == refused_logged_ || last_look_ - last_refused_line_ < kRefusedLineEvery) return;
  log_warn(std::to_string(refused.count - refused_logged_) +
           " connections refused; the last: " + refused.last_reason);
  refused_logged_ = refused.count;
  last_refused_line_ = last_look_;
}

void Hub::check_directory() {
  last_look_ = Clock::now();
  log_refused();
  if (!lock_.is_at_its_path()) {
    auto made = directory_.ensure();
    auto lock = made ? HubLock::acquire(directory_)
                     : tl::expected<HubLock, HubLock::Failure>(
                           tl::unexpect, HubLock::Failure{HubLock::Failure::Kind::error, made.error()});
    if (lock) {
      lock_ = std::move(*lock);
      if (lead_) lead_->endpoint().save_keys();
      if (relay_) relay_->save_keys();
      log_warn("the job's directory was removed: making a new one");
    } else if (lock.error().kind == HubLock::Failure::Kind::taken) {
      log_warn("another hub has locked the job's directory: this hub exits");
      replaced_ = true;
      return;
    } else {
      log_debug("the job's directory: " + lock.error().reason);
      return hand_over();
    }
  }
  if (lead_) lead_->restore_files(last_look_);
  if (auto rebound = server_->rebind(); !rebound) log_debug(rebound.error());
}

// Ends this hub if its runtime directory is gone, as /run/user/UID is after a logout. The ranks then start a
// hub in the other base, and it continues the epoch.
void Hub::hand_over() {
  const auto left = make_job_directory(launch_id_, job_bases());
  if (!left || left->path == directory_.path ||
      ::access(directory_.path.parent_path().parent_path().c_str(), F_OK) == 0)
    return;
  const auto lock = HubLock::acquire(*left);
  if (lock && lead_) lead_->hand_over(*left);
  log_warn(directory_.path.string() + " is gone and cannot be made again: the job moves to " +
           left->path.string());
  replaced_ = true;
}

bool Hub::finished() const {
  if (replaced_ || (lead_ && lead_->superseded())) return true;
  const auto waited = Clock::now() - idle_since_;
  if (!lead_ && !relay_) return waited >= kFirstRankTimeout;
  if (!ranks_.empty() || waited < kLingerAfterLastRank) return false;
  return lead_ ? lead_->service().may_exit() : true;
}

void Hub::clean_up() {
  if (lead_) lead_->close();
  if (relay_) relay_->close();
  if (replaced_ || !lock_.is_at_its_path()) return;
  ::unlink(directory_.socket().c_str());
  ::unlink(directory_.alerts().c_str());
  ::unlink(directory_.decisions().c_str());
  ::unlink(directory_.keys().c_str());
  ::unlink(directory_.lock().c_str());
}

}  // namespace gradmon
