// SPDX-License-Identifier: Apache-2.0
#include "control/net/messages.h"

#include <limits>
#include <type_traits>
#include <utility>

#include "control/net/wire_values.h"

namespace gradmon {
namespace {

constexpr char kEntryMark[] = "gradmon verdict 1\n";

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

wire::Letter to_wire(const Letter& letter) {
  wire::Letter out;
  out.set_epoch(letter.epoch);
  out.set_rank(letter.rank.value);
  out.set_incarnation(letter.incarnation);
  std::visit(Overloaded{
                 [&](const Hello& m) { write(m, *out.mutable_hello()); },
                 [&](const Joined& m) { write(m, *out.mutable_joined()); },
                 [&](const Ready& m) { write(m, *out.mutable_ready()); },
                 [&](const Reject& m) { write(m, *out.mutable_reject()); },
                 [&](const Applied& m) { write(m, *out.mutable_applied()); },
                 [&](const Finished& m) { out.mutable_finished()->set_revision(m.revision.value); },
                 [&](const Missed& m) { out.mutable_missed()->set_revision(m.revision.value); },
                 [&](const Progress& m) { write(m, *out.mutable_progress()); },
                 [&](const Left& m) { out.mutable_left()->set_last(m.last.value); },
                 [&](const Pong& m) { out.mutable_pong()->set_number(m.number); },
                 [&](const Probed& m) { write(m, *out.mutable_probed()); },
                 [&](const Welcome& m) { write(m, *out.mutable_welcome()); },
                 [&](const Prepare& m) { write(m, *out.mutable_prepare()); },
                 [&](const LeftHeard&) { out.mutable_left_heard(); },
                 [&](const Replaced&) { out.mutable_replaced(); },
                 [&](const Ping& m) { out.mutable_ping()->set_number(m.number); },
                 [&](const Probe& m) { write(m, *out.mutable_probe()); },
                 [&](const Closing&) { out.mutable_closing(); },
                 [&](const Decided& m) { write(m.last, *out.mutable_decided()->mutable_last()); },
             },
             letter.message);
  return out;
}

tl::expected<Message, std::string> message_of(const wire::Letter& in) {
  switch (in.message_case()) {
    case wire::Letter::kHello:
      return read_hello(in.hello());
    case wire::Letter::kJoined:
      return Joined{in.joined().shares_directory(), in.joined().reason(), in.joined().shares_store()};
    case wire::Letter::kReady:
      return read_ready(in.ready());
    case wire::Letter::kReject:
      return Reject{{in.reject().revision()}, in.reject().reason()};
    case wire::Letter::kApplied:
      return Applied{{in.applied().revision()}, {in.applied().step()}};
    case wire::Letter::kFinished:
      return Finished{{in.finished().revision()}};
    case wire::Letter::kMissed:
      return Missed{{in.missed().revision()}};
    case wire::Letter::kProgress:
      return read_progress(in.progress());
    case wire::Letter::kLeft:
      return Left{{in.left().last()}};
    case wire::Letter::kPong:
      return Pong{in.pong().number()};
    case wire::Letter::kProbed:
      return Probed{in.probed().id(), in.probed().matches(), in.probed().objection(),
                    read_targets(in.probed().targets())};
    case wire::Letter::kPing:
      return Ping{in.ping().number()};
    case wire::Letter::kProbe:
      return read_probe(in.probe()).map([](Probe m) { return Message(std::move(m)); });
    case wire::Letter::kWelcome:
      return read_welcome(in.welcome()).map([](Welcome m) { return Message(std::move(m)); });
    case wire::Letter::kPrepare:
      return read_prepare(in.prepare()).map([](Prepare m) { return Message(std::move(m)); });
    case wire::Letter::kLeftHeard:
      return LeftHeard{};
    case wire::Letter::kReplaced:
      return Replaced{};
    case wire::Letter::kClosing:
      return Closing{};
    case wire::Letter::kDecided:
      return read_last_word(in.decided().last()).map([](LastWord last) {
        return Message(Decided{std::move(last)});
      });
    case wire::Letter::MESSAGE_NOT_SET:
      break;
  }
  return tl::unexpected(std::string("a letter without a known message"));
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
                 [&](const Letter& letter) { *out.mutable_letter() = to_wire(letter); },
                 [&](const Command& command) { write(command, *out.mutable_command()); },
                 [&](const AddressedReply& reply) {
                   write(reply.reply, *out.mutable_reply());
                   out.mutable_reply()->set_request_id(reply.request_id);
                 },
                 [&](const Status& status) { write(status, *out.mutable_state()); },
             },
             frame);
  return out.SerializeAsString();
}

tl::expected<Frame, std::string> decode_frame(std::string_view bytes) {
  wire::Frame in;
  if (!parse(bytes, in)) return tl::unexpected(std::string("not a frame of ours"));
  switch (in.content_case()) {
    case wire::Frame::kLetter: {
      auto message = message_of(in.letter());
      if (!message) return tl::unexpected(message.error());
      return Letter{in.letter().epoch(), Rank{in.letter().rank()}, in.letter().incarnation(),
                    std::move(*message)};
    }
    case wire::Frame::kCommand:
      return read_command(in.command()).map([](Command command) { return Frame(std::move(command)); });
    case wire::Frame::kReply:
      return AddressedReply{in.reply().request_id(), read_reply(in.reply())};
    case wire::Frame::kState:
      return read_status(in.state());
    case wire::Frame::CONTENT_NOT_SET:
      break;
  }
  return tl::unexpected(std::string("an empty frame"));
}

std::string encode(const Verdict& verdict) {
  wire::Verdict out;
  write(verdict, out);
  return kEntryMark + out.SerializeAsString();
}

tl::expected<Verdict, std::string> decode_verdict(std::string_view bytes) {
  constexpr std::string_view mark = kEntryMark;
  wire::Verdict in;
  if (bytes.substr(0, mark.size()) != mark || !parse(bytes.substr(mark.size()), in)) {
    return tl::unexpected(std::string("not a register entry"));
  }
  return read_verdict(in);
}

}  // namespace gradmon
