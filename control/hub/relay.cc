// SPDX-License-Identifier: Apache-2.0
#include "control/hub/relay.h"

#include <algorithm>
#include <set>

#include "control/host/child_process.h"
#include "control/log.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFastPoll{250};
constexpr seconds kLookAgainEvery{2};  // the lead may have moved
constexpr milliseconds kGatherFor{3};
constexpr milliseconds kGatherProgressFor{300};  // Progress is not urgent, and a lease lasts 10 s
constexpr seconds kAnswersWithin{4};
constexpr int kMostFromLeadInATurn = 200;
constexpr std::size_t kMostGathered = 10'000;
constexpr std::size_t kMostPendingCommands = 1'000;
constexpr std::size_t kMostCandidates = 8;
constexpr TokenBucket::Rate kAlertReports{200, 400};
constexpr TokenBucket::Rate kReplicaMessages{400, 2'000};

// False for port 0 or "*": only the lead knows the real port.
bool knows_port(const std::string& endpoint) {
  const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
  return is_tcp(endpoint) && port != "*" && port != "0";
}

}  // namespace

Relay::Relay(Introduction introduction, fs::path key_file, std::shared_ptr<Mailbox> mailbox,
             LocalPeers& peers)
    : introduction_(std::move(introduction)),
      key_file_(std::move(key_file)),
      mailbox_(std::move(mailbox)),
      peers_(peers),
      next_ask_(Clock::now() + store_poll_delay(introduction_.several_hosts)),
      lost_since_(Clock::now()),
      alert_reports_(kAlertReports, Clock::now()),
      replica_messages_(kReplicaMessages, Clock::now()) {
  const bool by_endpoint = knows_port(introduction_.endpoint);
  if (!introduction_.keys.empty() ||
      (by_endpoint && introduction_.insecure_loopback && is_loopback(introduction_.endpoint))) {
    if (by_endpoint) add_candidate({introduction_.endpoint, ""});
    return;
  }
  if (auto own = hub_keys_in(key_file_)) {
    generated_keys_ = std::move(*own);
    save_keys();
  } else {
    trouble_ = own.error();
  }
}

Relay::~Relay() { *alive_ = false; }

void Relay::save_keys() {
  if (!generated_keys_) return;
  if (auto kept = save_hub_keys(key_file_, *generated_keys_); !kept)
    log_warn("keys of this hub: " + kept.error());
}

HubNote Relay::note() const {
  return {introduction_.launch_id, host_name(),
          generated_keys_ ? to_z85(generated_keys_->secret.public_key()) : ""};
}

void Relay::close() {
  if (!generated_keys_) return;
  disk_.post([directory = introduction_.output_dir, note = note()] { remove_note(directory, note); });
  disk_.drain(milliseconds{200});
}

void Relay::look_in_directory(Clock::time_point now) {
  if (looking_ || now < next_look_) return;
  next_look_ = now + (reached_ ? Clock::duration(kLookAgainEvery) : Clock::duration(kFastPoll));
  looking_ = true;
  disk_.post([this, alive = alive_, mailbox = mailbox_, directory = introduction_.output_dir, note = note()] {
    auto job = find_entry(directory, note.launch_id);
    if (auto kept = note.key.empty() ? Result<void>() : write_note(directory, note); !kept)
      log_debug("note: " + kept.error());
    mailbox->post([this, alive, job = std::move(job)] {
      if (!*alive) return;
      looking_ = false;
      if (job) on_entry(*job);
    });
  });
}

void Relay::look_in_store(Clock::time_point now) {
  const auto interval = store_poll_interval(now - lost_since_);
  if (reached_ || now < next_ask_ || !interval) return;
  next_ask_ = now + *interval;
  peers_.ask_store({generated_keys_ ? to_text(note()) : "", {}});
}

void Relay::on_store_notes(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (const auto entry = parse_entry(text); entry && entry->launch_id == introduction_.launch_id)
      on_entry(*entry);
  }
}

void Relay::on_entry(const JobEntry& entry) {
  const std::string& address = knows_port(introduction_.endpoint) ? introduction_.endpoint : entry.address;
  if (!address.empty()) return add_candidate({address, generated_keys_ ? entry.key : ""});
  if (bus_) return;
  trouble_ = "the lead hub on " + entry.host + " does not listen for other hosts" +
             (entry.trouble.empty() ? " yet" : ": " + entry.trouble);
}

void Relay::add_candidate(LeadAddress place) {
  const auto same = [&](const LeadAddress& known) {
    return known.address == place.address && known.key == place.key;
  };
  if (std::any_of(candidates_.begin(), candidates_.end(), same)) return;
  candidates_.insert(candidates_.begin(), std::move(place));
  if (candidates_.size() > kMostCandidates) candidates_.pop_back();
  next_candidate_ = 0;
  next_try_ = {};
  if (!reached_) bus_.reset();
}

Result<std::optional<ClientKeys>> Relay::keys_for(const LeadAddress& place) const {
  if (!introduction_.keys.empty()) {
    return read_rank_keys(introduction_.keys).map([](ClientKeys keys) {
      return std::optional(std::move(keys));
    });
  }
  KeyBytes server{};
  if (!generated_keys_ || place.key.empty()) return std::optional<ClientKeys>();
  if (place.key.size() != kKeyText || from_z85(place.key, server))
    return tl::unexpected(std::string("the lead hub's entry holds no key"));
  return std::optional(ClientKeys{SecretKey(generated_keys_->secret.bytes()), server});
}

void Relay::try_next_candidate(Clock::time_point now) {
  if (bus_ || candidates_.empty() || now < next_try_) return;
  const LeadAddress& place = candidates_[next_candidate_++ % candidates_.size()];
  next_try_ = now + kFastPoll;
  auto keys = keys_for(place);
  if (!keys) return give_up_connection(keys.error(), now + kLookAgainEvery);
  auto bus = Bus::make_client({kMaxFrameBytes}, std::move(*keys));
  auto connected = bus ? (*bus)->connect(place.address) : Result<void>(tl::unexpect, bus.error());
  if (!connected) return give_up_connection(connected.error(), now + kLookAgainEvery);
  bus_ = std::move(*bus);
  endpoint_ = place.address;
  unanswered_since_.reset();
}

void Relay::give_up_connection(std::string why, Clock::time_point next) {
  const auto now = std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch());
  if (warning_limiter_.allows(why, now)) log_warn(why);
  trouble_ = std::move(why);
  if (std::exchange(reached_, false)) lost_since_ = Clock::now();
  bus_.reset();
  next_try_ = next;
}

void Relay::pass_on(Bundle bundle) {
  const bool alerts = std::holds_alternative<AlertReport>(bundle.message);
  if (alerts && !alert_reports_.try_take(Clock::now())) return;  // Progress carries their number.
  const bool replicas = std::holds_alternative<ReplicaDigests>(bundle.message) ||
                        std::holds_alternative<ReplicaValues>(bundle.message);
  if (replicas && !replica_messages_.try_take(Clock::now())) return;  // The lead counts missing messages.
  if (gathered_.empty()) gathered_since_ = Clock::now();
  if (gathered_.size() < kMostGathered) gathered_.push_back(std::move(bundle));
}

void Relay::on_command(const std::string& peer, const Command& command) {
  if (!bus_ || (!reached_ && !trouble_.empty())) {
    const CommandReply reply = failed_reply(CommandOutcome::no_lead, trouble_);
    return peers_.answer(peer, encode(Frame(AddressedReply{command.request_id, reply})));
  }
  if (pending_commands_.size() >= kMostPendingCommands) pending_commands_.clear();
  pending_commands_[command.request_id] = peer;
  bus_->send("", encode(Frame(command)));
}

void Relay::add_to(std::vector<pollfd>& polled) const {
  if (bus_) bus_->add_to(polled);
}

milliseconds Relay::longest_wait(milliseconds at_most) const {
  return bus_ && !gathered_.empty() ? std::min(at_most, gather_for()) : at_most;
}

milliseconds Relay::gather_for() const {
  const bool may_wait = std::all_of(gathered_.begin(), gathered_.end(), [](const Bundle& bundle) {
    return std::holds_alternative<Progress>(bundle.message);
  });
  return may_wait ? kGatherProgressFor : kGatherFor;
}

void Relay::turn(Clock::time_point now) {
  look_in_directory(now);
  look_in_store(now);
  try_next_candidate(now);
  if (!bus_) return;
  receive();
  const std::string lead = "the lead hub at " + endpoint_;
  if (!bus_->refusal().empty()) {
    const bool not_yet = generated_keys_ && bus_->refusal().find("does not list") != std::string::npos;
    return give_up_connection(lead + (not_yet ? " does not know this hub yet" : ": " + bus_->refusal()),
                              now + kFastPoll);
  }
  if (unanswered_since_ && now - *unanswered_since_ > kAnswersWithin)
    return give_up_connection(lead + " does not answer" + (bus_->hint().empty() ? "" : ": " + bus_->hint()),
                              now);
  flush(now);
}

void Relay::receive() {
  for (int i = 0; i < kMostFromLeadInATurn; ++i) {
    const auto incoming = bus_->poll(milliseconds{0}, -1);
    if (!incoming) return;
    if (!std::exchange(reached_, true)) {
      log_info("the lead hub is at " + endpoint_);
      warning_limiter_ = {};
    }
    trouble_.clear();
    unanswered_since_.reset();
    on_bytes(incoming->bytes);
  }
}

void Relay::on_bytes(const std::string& bytes) {
  auto frame = decode_frame(bytes);
  if (!frame) return log_debug("from the lead hub: " + frame.error());
  if (auto* bundles = std::get_if<Bundles>(&*frame)) {
    for (const Bundle& bundle : *bundles) peers_.deliver(bundle);
  } else if (auto* answer = std::get_if<AddressedReply>(&*frame)) {
    const auto asked = pending_commands_.find(answer->request_id);
    if (asked == pending_commands_.end()) return;
    const std::string peer = asked->second;
    pending_commands_.erase(asked);
    peers_.answer(peer, bytes);
  }
}

void Relay::flush(Clock::time_point now) {
  if (gathered_.empty()) return;
  std::set<int> senders;
  for (const Bundle& bundle : gathered_) senders.insert(bundle.to.front().first);
  if (senders.size() < peers_.ranks() && now - gathered_since_ < gather_for()) return;
  if (!unanswered_since_) unanswered_since_ = now;
  for (const std::string& frame : encode_bundles(take_gathered())) bus_->send("", frame);
}

}  // namespace gradmon
