// SPDX-License-Identifier: Apache-2.0
#include "control/client/hub_query.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "control/host/frame_stream.h"
#include "control/host/process_identity.h"
#include "control/host/run_in_child.h"
#include "control/host/unix_socket.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kReplyTimeout{3000};
constexpr milliseconds kReplyTimeoutOnceFound{1000};
constexpr milliseconds kRestartGrace{1000};
constexpr milliseconds kReconnectInterval{50};
constexpr milliseconds kProcessesTime{1000};

class HubQuery {
 public:
  explicit HubQuery(const JobDirectory& directory) : socket_(directory.socket()) { connect(); }

  // True if a reply may still come. `may_come_back`: also from a hub that is not connected.
  bool waited_for(bool may_come_back) const { return !replied_ && (stream_ || may_come_back); }
  bool connected() const { return stream_ != nullptr; }
  pollfd polled() const {
    return {stream_->fd(), static_cast<short>(POLLIN | (stream_->wants_write() ? POLLOUT : 0)), 0};
  }

  // The reason why the hub gave no status, such as a relay without the lead hub; "": it did, or it is silent.
  const std::string& refusal() const { return refusal_; }

  // Returns the status once the reply has come; none before and after. Asks again after another reply.
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

  const fs::path& socket() const { return socket_; }

 private:
  void connect() {
    auto fd = connect_unix(socket_);
    if (!fd) return;
    stream_ = std::make_unique<FrameStream>(*fd, FrameStream::Limits{kMaxFrameBytes, kMaxFrameBytes});
    Command command;
    command.request_id = random_hex(16);
    if (!stream_->send(encode(Frame(command)))) stream_.reset();
  }

  const fs::path socket_;
  std::unique_ptr<FrameStream> stream_;  // null: not connected
  bool replied_ = false;
  std::string refusal_;
};

// The part with this index of a file whose parts end with `separator`; "" if the part is missing.
std::string part_of(const fs::path& file, char separator, int index) {
  std::ifstream in(file);
  std::string part;
  for (int i = 0; i <= index; ++i) {
    if (!std::getline(in, part, separator)) return "";
  }
  return part;
}

// Returns the directories without repetitions.
std::vector<JobDirectory> unique(std::vector<JobDirectory> directories) {
  std::set<fs::path> seen;
  const auto again = [&seen](const JobDirectory& each) { return !seen.insert(each.path).second; };
  directories.erase(std::remove_if(directories.begin(), directories.end(), again), directories.end());
  return directories;
}

bool answered(const HubReplies& replies, const Status& job) {
  return std::any_of(replies.answers.begin(), replies.answers.end(), [&job](const HubReplies::Answer& each) {
    return each.status.epoch == job.epoch && each.status.launch_id == job.launch_id;
  });
}

}  // namespace

std::vector<JobDirectory> directories_of_hub_processes() {
  const auto found = run_in_child(
      [] {
        std::string paths;
        std::error_code error;
        for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
          struct stat owner {};
          if (::stat(at->path().c_str(), &owner) != 0 || owner.st_uid != geteuid()) continue;
          if (part_of(at->path() / "comm", '\n', 0) == "gradmon-hub")
            paths += part_of(at->path() / "cmdline", '\0', 1) + '\0';
        }
        return paths;
      },
      kProcessesTime);
  std::vector<JobDirectory> directories;
  std::istringstream paths(found.value_or(""));
  for (std::string path; std::getline(paths, path, '\0');) {
    JobDirectory directory{path};
    if (directory.path.is_absolute() && directory.check()) directories.push_back(std::move(directory));
  }
  return directories;
}

HubReplies query_all_hubs(const std::function<bool(const Status&)>& wanted) {
  std::vector<JobDirectory> directories = find_job_directories().directories;
  for (JobDirectory& directory : directories_of_hub_processes()) directories.push_back(std::move(directory));
  return query_hubs(std::move(directories), wanted);
}

HubReplies query_hubs(std::vector<JobDirectory> directories,
                      const std::function<bool(const Status&)>& wanted) {
  HubReplies replies;
  replies.asked = unique(std::move(directories));
  std::vector<std::unique_ptr<HubQuery>> hubs;
  for (const JobDirectory& directory : replies.asked) hubs.push_back(std::make_unique<HubQuery>(directory));
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
      if (answered(replies, *status)) continue;  // by another hub of the same job
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
