// SPDX-License-Identifier: Apache-2.0
#include "control/client/hub_query.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "control/host/frame_stream.h"
#include "control/host/job_directory.h"
#include "control/host/process_identity.h"
#include "control/host/unix_socket.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kReplyTimeout{3000};
constexpr milliseconds kReplyTimeoutOnceFound{1000};
constexpr milliseconds kRestartGrace{1000};
constexpr milliseconds kReconnectInterval{50};

class HubQuery {
 public:
  explicit HubQuery(const JobDirectory& directory) : socket_(directory.socket()) { connect(); }

  // Whether a reply may still come. `may_come_back`: from a hub that is not connected, too.
  bool waited_for(bool may_come_back) const { return !replied_ && (stream_ || may_come_back); }
  bool connected() const { return stream_ != nullptr; }
  pollfd polled() const {
    return {stream_->fd(), static_cast<short>(POLLIN | (stream_->wants_write() ? POLLOUT : 0)), 0};
  }

  // Why the hub gave no status, as a relay does that cannot reach the lead hub; "": it did, or it is silent.
  const std::string& refusal() const { return refusal_; }

  // Returns the status when the reply has come; none before and after. After another reply asks again.
  std::optional<Status> take_status() {
    if (!stream_) connect();
    if (!stream_) return {};
    stream_->flush();
    std::optional<Status> status;
    const auto read = stream_->read([&](std::string&& bytes) {
      auto frame = decode_frame(bytes);
      auto* answer = frame ? std::get_if<AddressedReply>(&*frame) : nullptr;
      if (answer == nullptr) return;
      status = std::move(answer->reply.status);
      replied_ = status.has_value();
      refusal_ = replied_ ? "" : answer->reply.message;
    });
    if (replied_ || !refusal_.empty() || read.state != FrameStream::Read::State::open) stream_.reset();
    return status;
  }

  const std::filesystem::path& socket() const { return socket_; }

 private:
  void connect() {
    auto fd = connect_unix(socket_);
    if (!fd) return;
    stream_ = std::make_unique<FrameStream>(*fd, FrameStream::Limits{kMaxFrameBytes, kMaxFrameBytes});
    Command command;
    command.request_id = random_hex(16);
    if (!stream_->send(encode(Frame(command)))) stream_.reset();
  }

  const std::filesystem::path socket_;
  std::unique_ptr<FrameStream> stream_;  // null: not connected
  bool replied_ = false;
  std::string refusal_;
};

}  // namespace

HubReplies query_all_hubs(const std::function<bool(const Status&)>& wanted) {
  HubReplies replies;
  std::vector<std::unique_ptr<HubQuery>> hubs;
  for (const JobDirectory& directory : find_job_directories().directories)
    hubs.push_back(std::make_unique<HubQuery>(directory));
  bool found = false;
  for (const auto begun = Clock::now();;) {
    const auto left = (found ? kReplyTimeoutOnceFound : kReplyTimeout) - (Clock::now() - begun);
    const bool may_come_back = !found && Clock::now() - begun < kRestartGrace;
    const auto waits = [&](const auto& hub) { return hub->waited_for(may_come_back); };
    if (left <= Clock::duration{0} || std::none_of(hubs.begin(), hubs.end(), waits)) break;
    std::vector<pollfd> polled;
    for (const auto& hub : hubs) {
      if (hub->connected()) polled.push_back(hub->polled());
    }
    const auto pause = may_come_back ? std::min<Clock::duration>(left, kReconnectInterval) : left;
    ::poll(polled.data(), polled.size(), static_cast<int>(std::chrono::ceil<milliseconds>(pause).count()));
    for (const auto& hub : hubs) {
      if (!hub->waited_for(may_come_back)) continue;
      auto status = hub->take_status();
      if (!status) continue;
      found = found || wanted(*status);
      replies.answers.push_back({ipc_endpoint(hub->socket()), std::move(*status)});
    }
  }
  for (const auto& hub : hubs) {
    if (!hub->refusal().empty())
      replies.unresponsive.push_back("the hub at " + hub->socket().string() + ": " + hub->refusal());
    if (!hub->connected()) continue;
    replies.unresponsive.push_back("the hub at " + hub->socket().string() + " does not answer");
  }
  return replies;
}

}  // namespace gradmon
