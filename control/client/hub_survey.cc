// SPDX-License-Identifier: Apache-2.0
#include "control/client/hub_survey.h"

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

constexpr milliseconds kPatience{3000};
constexpr milliseconds kWithOneFound{1000};
constexpr milliseconds kComesBackWithin{1000};
constexpr milliseconds kConnectEvery{50};

class AskedHub {
 public:
  explicit AskedHub(const JobDirectory& directory) : socket_(directory.socket()) { connect(); }

  // Whether a reply may still come. `may_come_back`: from a hub that is not connected, too.
  bool waited_for(bool may_come_back) const { return !over_ && (stream_ || may_come_back); }
  bool connected() const { return stream_ != nullptr; }
  pollfd polled() const {
    return {stream_->fd(), static_cast<short>(POLLIN | (stream_->wants_write() ? POLLOUT : 0)), 0};
  }

  // Returns the status when the reply has come; none before and after.
  std::optional<Status> look() {
    if (!stream_) connect();
    if (!stream_) return {};
    stream_->flush();
    std::optional<Status> status;
    const auto read = stream_->read([&](std::string&& bytes) {
      auto frame = decode_frame(bytes);
      auto* answer = frame ? std::get_if<AddressedReply>(&*frame) : nullptr;
      if (answer == nullptr) return;
      over_ = true;
      status = std::move(answer->reply.status);
    });
    if (over_ || read.state != FrameStream::Read::State::open) stream_.reset();
    return status;
  }

  const std::filesystem::path& socket() const { return socket_; }

 private:
  void connect() {
    std::error_code error;
    auto fd = connect_unix(socket_);
    if (!fd) {
      over_ = !std::filesystem::exists(socket_, error);
      return;
    }
    stream_ = std::make_unique<FrameStream>(*fd, FrameStream::Limits{kMostBytesDown, kMostBytesDown});
    Command command;
    command.request_id = random_hex(16);
    if (!stream_->send(encode(Frame(command)))) stream_.reset();
  }

  const std::filesystem::path socket_;
  std::unique_ptr<FrameStream> stream_;  // null: not connected
  bool over_ = false;                    // the hub has replied, or its socket does not exist
};

}  // namespace

HubSurvey ask_all_hubs(const std::function<bool(const Status&)>& wanted) {
  HubSurvey survey;
  std::vector<std::unique_ptr<AskedHub>> hubs;
  for (const JobDirectory& directory : find_job_directories().directories)
    hubs.push_back(std::make_unique<AskedHub>(directory));
  bool found = false;
  for (const auto begun = Clock::now();;) {
    const auto left = (found ? kWithOneFound : kPatience) - (Clock::now() - begun);
    const bool may_come_back = !found && Clock::now() - begun < kComesBackWithin;
    const auto waits = [&](const auto& hub) { return hub->waited_for(may_come_back); };
    if (left <= Clock::duration{0} || std::none_of(hubs.begin(), hubs.end(), waits)) break;
    std::vector<pollfd> polled;
    for (const auto& hub : hubs) {
      if (hub->connected()) polled.push_back(hub->polled());
    }
    const auto pause = may_come_back ? std::min<Clock::duration>(left, kConnectEvery) : left;
    ::poll(polled.data(), polled.size(), static_cast<int>(std::chrono::ceil<milliseconds>(pause).count()));
    for (const auto& hub : hubs) {
      if (!hub->waited_for(may_come_back)) continue;
      auto status = hub->look();
      if (!status) continue;
      found = found || wanted(*status);
      survey.answers.push_back({"ipc://" + hub->socket().string(), std::move(*status)});
    }
  }
  for (const auto& hub : hubs) {
    if (!hub->connected()) continue;
    survey.silent.push_back("the hub at " + hub->socket().string() + " does not answer");
  }
  return survey;
}

}  // namespace gradmon
