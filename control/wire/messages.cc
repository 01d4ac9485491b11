// SPDX-License-Identifier: Apache-2.0
#include "control/wire/messages.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "control/wire/field_codec.h"
#include "control/wire/status_fields.h"
#include "control/wire/wire_values.h"

namespace gradmon {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

void to_wire(const Bundle& bundle, wire::Bundle& out) {
  out.set_epoch(bundle.epoch);
  for (const auto& [rank, incarnation] : bundle.to) {
    wire::Address& address = *out.add_to();
    address.set_rank(rank);
    address.set_incarnation(incarnation);
  }
  std::visit(Overloaded{
                 [&](const Hello& m) { write(m, *out.mutable_hello()); },
                 [&](const Offered& m) { write(m, *out.mutable_offered()); },
                 [&](const Ready& m) { write(m, *out.mutable_ready()); },
                 [&](const Reject& m) { write(m, *out.mutable_reject()); },
                 [&](const Busy& m) { write(m, *out.mutable_busy()); },
                 [&](const Applied& m) { write(m, *out.mutable_applied()); },
                 [&](const Finished& m) { out.mutable_finished()->set_revision(m.revision.value); },
                 [&](const Progress& m) { write(m, *out.mutable_progress()); },
                 [&](const Left& m) { out.mutable_left()->set_last(m.last.value); },
                 [&](const Disconnected&) { out.mutable_disconnected(); },
                 [&](const DryRunAnswer& m) { write(m, *out.mutable_dry_run_answer()); },
                 [&](const Welcome& m) { write(m, *out.mutable_welcome()); },
                 [&](const Offer& m) { write(m, *out.mutable_offer()); },
                 [&](const Prepare& m) { write(m, *out.mutable_prepare()); },
                 [&](const Decided& m) { write(m.last, *out.mutable_decided()->mutable_last()); },
                 [&](const ProgressAck& m) { out.mutable_progress_ack()->set_number(m.number); },
                 [&](const LeftAck&) { out.mutable_left_ack(); },
                 [&](const RejoinRequest&) { out.mutable_rejoin_request(); },
                 [&](const Replaced&) { out.mutable_replaced(); },
                 [&](const DryRun& m) { write(m, *out.mutable_dry_run()); },
                 [&](const AlertReport& m) { out.set_alerts(encode_fields(m)); },
                 [&](const ReplicaDigests& m) { out.set_replica_digests(encode_fields(m)); },
                 [&](const ReplicaRequest& m) { out.set_replica_request(encode_fields(m)); },
                 [&](const ReplicaValues& m) { out.set_replica_values(encode_fields(m)); },
             },
             bundle.message);
}

template <class T>
tl::expected<Message, std::string> widened(tl::expected<T, std::string> from) {
  return std::move(from).map([](T m) { return Message(std::move(m)); });
}

tl::expected<Message, std::string> read_alerts(std::string_view bytes) {
  auto report = decode_fields<AlertReport>(bytes);
  if (!report) return tl::unexpected(std::string("invalid alert report"));
  return Message(bounded(std::move(*report)));
}

// Decodes a message of alerts/replicas.h.
template <class T>
tl::expected<Message, std::string> read_replica(std::string_view bytes, const char* what) {
  auto message = decode_fields<T>(bytes);
  if (!message || !is_valid(*message)) return tl::unexpected(std::string("invalid ") + what);
  return Message(std::move(*message));
}

tl::expected<Message, std::string> read_message(const wire::Bundle& in) {
  switch (in.message_case()) {
    case wire::Bundle::kHello:
      return widened(read_hello(in.hello()));
    case wire::Bundle::kOffered:
      return read_offered(in.offered());
    case wire::Bundle::kReady:
      return Ready{{in.ready().revision()}, in.ready().config_sha256(), {in.ready().fence()}};
    case wire::Bundle::kReject:
      return Reject{{in.reject().revision()}, in.reject().reason()};
    case wire::Bundle::kBusy:
      return Busy{{in.busy().revision()}, in.busy().reason()};
    case wire::Bundle::kApplied:
      return Applied{{in.applied().revision()}, {in.applied().step()}};
    case wire::Bundle::kFinished:
      return Finished{{in.finished().revision()}};
    case wire::Bundle::kProgress:
      return read_progress(in.progress());
    case wire::Bundle::kLeft:
      return Left{{in.left().last()}};
    case wire::Bundle::kDisconnected:
      return Disconnected{};
    case wire::Bundle::kDryRunAnswer:
      return DryRunAnswer{in.dry_run_answer().id(), in.dry_run_answer().matches(),
                          in.dry_run_answer().objection(), read_targets(in.dry_run_answer().targets())};
    case wire::Bundle::kWelcome:
      return widened(read_welcome(in.welcome()));
    case wire::Bundle::kOffer:
      return widened(read_offer(in.offer()));
    case wire::Bundle::kPrepare:
      return widened(read_prepare(in.prepare()));
    case wire::Bundle::kDecided:
      return read_known_decisions(in.decided().last()).map([](KnownDecisions last) {
        return Message(Decided{std::move(last)});
      });
    case wire::Bundle::kProgressAck:
      return ProgressAck{in.progress_ack().number()};
    case wire::Bundle::kLeftAck:
      return LeftAck{};
    case wire::Bundle::kRejoinRequest:
      return RejoinRequest{};
    case wire::Bundle::kReplaced:
      return Replaced{};
    case wire::Bundle::kDryRun:
      return widened(read_dry_run(in.dry_run()));
    case wire::Bundle::kAlerts:
      return read_alerts(in.alerts());
    case wire::Bundle::kReplicaDigests:
      return read_replica<ReplicaDigests>(in.replica_digests(), "replica digests");
    case wire::Bundle::kReplicaRequest:
      return read_replica<ReplicaRequest>(in.replica_request(), "replica request");
    case wire::Bundle::kReplicaValues:
      return read_replica<ReplicaValues>(in.replica_values(), "replica values");
    case wire::Bundle::MESSAGE_NOT_SET:
      break;
  }
  return tl::unexpected(std::string("unknown message type"));
}

tl::expected<Bundles, std::string> read_bundles(const wire::Bundles& in) {
  Bundles bundles;
  for (const wire::Bundle& each : in.bundles()) {
    auto message = read_message(each);
    if (!message) return tl::unexpected(message.error());
    Bundle bundle{each.epoch(), {}, std::move(*message)};
    for (const wire::Address& address : each.to())
      bundle.to.emplace_back(address.rank(), address.incarnation());
    bundles.push_back(std::move(bundle));
  }
  return bundles;
}

template <class Proto>
bool parse(std::string_view bytes, Proto& into) {
  return bytes.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()) &&
         into.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

std::string encode(const Frame& frame) {
  wire::Frame out;
  std::visit(Overloaded{
                 [&](const Bundles& bundles) {
                   out.mutable_bundles();
                   for (const Bundle& bundle : bundles)
                     to_wire(bundle, *out.mutable_bundles()->add_bundles());
                 },
                 [&](const Command& command) { write(command, *out.mutable_command()); },
                 [&](const AddressedReply& reply) {
                   write(reply.reply, *out.mutable_reply());
                   out.mutable_reply()->set_request_id(reply.request_id);
                 },
                 [&](const Status& status) { out.set_state(encode_fields(status)); },
                 [&](const HubLogLine& line) {
                   out.mutable_hub_log_line()->set_level(static_cast<std::uint32_t>(line.level));
                   out.mutable_hub_log_line()->set_text(line.text);
                 },
                 [&](const Introduction& m) { write(m, *out.mutable_introduction()); },
                 [&](const StoreNotes& notes) {
                   out.mutable_store_notes()->set_own(notes.own_note);
                   for (const std::string& note : notes.other_notes)
                     out.mutable_store_notes()->add_others(note);
                 },
             },
             frame);
  return out.SerializeAsString();
}

tl::expected<Frame, std::string> decode_frame(std::string_view bytes) {
  wire::Frame in;
  if (!parse(bytes, in)) return tl::unexpected(std::string("not a gradmon frame"));
  switch (in.content_case()) {
    case wire::Frame::kBundles:
      return read_bundles(in.bundles()).map([](Bundles bundles) { return Frame(std::move(bundles)); });
    case wire::Frame::kIntroduction:
      return read_introduction(in.introduction());
    case wire::Frame::kCommand:
      return read_command(in.command()).map([](Command command) { return Frame(std::move(command)); });
    case wire::Frame::kReply:
      return read_reply(in.reply()).map([&](CommandReply reply) {
        return Frame(AddressedReply{in.reply().request_id(), std::move(reply)});
      });
    case wire::Frame::kHubLogLine: {
      const auto level = std::min(in.hub_log_line().level(), static_cast<std::uint32_t>(LogLevel::error));
      return HubLogLine{static_cast<LogLevel>(level), in.hub_log_line().text()};
    }
    case wire::Frame::kState: {
      auto status = decode_fields<Status>(in.state());
      if (!status) break;
      return std::move(*status);
    }
    case wire::Frame::kStoreNotes: {
      const auto& others = in.store_notes().others();
      return StoreNotes{in.store_notes().own(), {others.begin(), others.end()}};
    }
    case wire::Frame::CONTENT_NOT_SET:
      break;
  }
  return tl::unexpected(std::string("empty or unknown frame"));
}

std::vector<std::string> encode_bundles(Bundles bundles) {
  if (bundles.empty()) return {};
  std::string frame = encode(Frame(bundles));
  if (frame.size() <= kMaxFrameBytes || bundles.size() < 2) return {std::move(frame)};
  const auto middle = bundles.begin() + static_cast<std::ptrdiff_t>(bundles.size() / 2);
  std::vector<std::string> frames =
      encode_bundles({std::make_move_iterator(bundles.begin()), std::make_move_iterator(middle)});
  for (std::string& rest :
       encode_bundles({std::make_move_iterator(middle), std::make_move_iterator(bundles.end())}))
    frames.push_back(std::move(rest));
  return frames;
}

std::string encode(const LogEntry& entry) {
  wire::LogEntry out;
  write(entry, out);
  return out.SerializeAsString();
}

tl::expected<LogEntry, std::string> decode_log_entry(std::string_view bytes) {
  wire::LogEntry in;
  if (!parse(bytes, in)) return tl::unexpected(std::string("not an entry of the decision log"));
  return read_log_entry(in);
}

Bundle to_bundle(Envelope envelope) {
  return {
      std::move(envelope.epoch), {{envelope.rank.value, envelope.incarnation}}, std::move(envelope.message)};
}

std::vector<Envelope> to_envelopes(Bundle bundle) {
  std::vector<Envelope> all;
  for (const auto& [rank, incarnation] : bundle.to)
    all.push_back({bundle.epoch, Rank{rank}, incarnation, bundle.message});
  return all;
}

}  // namespace gradmon
