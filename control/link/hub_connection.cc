// SPDX-License-Identifier: Apache-2.0
#include "control/link/hub_connection.h"

#include <algorithm>
#include <utility>

#include "control/host/unix_socket.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPause{20};
constexpr milliseconds kLongPause{1000};
constexpr int kShortPauses = 100;
// Pauses between two starts, because the hub started before may not listen yet.
constexpr milliseconds kFirstStart{100};
constexpr milliseconds kLongestStart{1000};
// Room for a Hello with the plan that this rank holds, beside other queued frames.
constexpr std::size_t kMostUnread = 2 * kMostBytesDown;

}  // namespace

HubConnection::Place HubConnection::place(const EnvironmentLookup& environment) {
  return {job_bases(environment), find_hub_program(environment), hub_environment()};
}

HubConnection::HubConnection(std::string launch_id, Place place, milliseconds before_starting)
    : launch_id_(std::move(launch_id)),
      place_(std::move(place)),
      before_starting_(before_starting),
      next_start_(Clock::now() + before_starting) {}

bool HubConnection::connect_if_due(Clock::time_point now) {
  if (stream_ || now < next_try_) return false;
  auto connected = try_to_connect(now);
  if (connected) {
    trouble_.clear();
    tries_ = starts_ = failed_starts_ = 0;
    return true;
  }
  trouble_ = connected.error();
  next_try_ = now + (++tries_ < kShortPauses ? kPause : kLongPause);
  return false;
}

tl::expected<void, std::string> HubConnection::try_to_connect(Clock::time_point now) {
  auto directory = make_job_directory(launch_id_, place_.bases);
  if (!directory) return tl::unexpected(directory.error());
  auto fd = connect_unix(directory->socket());
  if (!fd) {
    if (now < next_start_) return tl::unexpected(start_trouble_.empty() ? fd.error() : start_trouble_);
    next_start_ = now + std::min(kFirstStart * (1 << std::min(starts_, 4)), kLongestStart);
    starts_ += 1;
    auto started = start_one(*directory);
    start_trouble_ = started ? "" : started.error();
    failed_starts_ += started ? 0 : 1;
    if (!started) return started;
    fd = connect_unix(directory->socket());
    if (!fd) return tl::unexpected(fd.error());
  }
  Descriptor socket(*fd);
  if (auto uid = peer_uid(socket.get()); !uid) return tl::unexpected(uid.error());
  closed_in_children_.emplace(socket.get());
  stream_ = std::make_unique<FrameStream>(socket.release(), FrameStream::Limits{kMostBytesDown, kMostUnread});
  return {};
}

tl::expected<void, std::string> HubConnection::start_one(const JobDirectory& directory) {
  if (!place_.program) return tl::unexpected(place_.program.error());
  return start_hub({*place_.program, directory, {launch_id_}, place_.environment});
}

bool HubConnection::send(std::string_view frame) {
  return stream_ && stream_->send(frame);
}

bool HubConnection::serve(const FrameStream::OnFrame& on_frame) {
  if (!stream_) return false;
  stream_->flush();
  const auto read = stream_->read(on_frame);
  if (read.state == FrameStream::Read::State::open) return true;
  lose(read.reason.empty() ? "the hub has gone" : read.reason);
  return false;
}

void HubConnection::lose(std::string why) {
  closed_in_children_.reset();
  stream_.reset();
  trouble_ = std::move(why);
  next_try_ = {};
  next_start_ = Clock::now() + before_starting_;
}

}  // namespace gradmon
