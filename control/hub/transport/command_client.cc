// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/command_client.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "control/files/descriptor.h"
#include "control/files/file_access.h"
#include "control/host/child_process.h"
#include "control/host/unix_stream.h"
#include "control/hub/transport/bus.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

std::string name_of(uid_t user) {
  const passwd* entry = getpwuid(user);
  return entry == nullptr ? "uid " + std::to_string(user) : entry->pw_name;
}

std::string name_and_number(uid_t user) {
  const std::string name = name_of(user);
  const std::string number = "uid " + std::to_string(user);
  return name == number ? name : name + " (" + number + ")";
}

// Returns the directory that denies access: the path itself, or else the last directory on the way to it that
// stat() can reach.
fs::path denying_path(const fs::path& path, struct stat& found) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  fs::path place = error ? path : whole;
  if (!place.has_filename()) place = place.parent_path();  // the path ended with a slash
  while (stat(place.c_str(), &found) != 0 && place != place.parent_path()) place = place.parent_path();
  return place;
}

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string late(const std::string& endpoint, milliseconds timeout) {
  return "no answer from " + endpoint + " within " + std::to_string(timeout.count()) + " ms";
}

std::optional<CommandReply> answer_in(std::string_view bytes, const std::string& request_id) {
  auto frame = decode_frame(bytes);
  if (!frame) return {};
  auto* answer = std::get_if<AddressedReply>(&*frame);
  if (answer == nullptr || answer->request_id != request_id) return {};
  return std::move(answer->reply);
}

}  // namespace

std::string access_denial(const fs::path& path, Access access) {
  struct stat found {};
  const bool there = stat(path.c_str(), &found) == 0;
  if (!there && errno != EACCES) return "";
  const int enter = there && S_ISDIR(found.st_mode) ? X_OK : 0;
  const int wanted = access == Access::connect ? W_OK : R_OK | enter;
  if (faccessat(AT_FDCWD, path.c_str(), wanted, AT_EACCESS) == 0 || errno != EACCES) return "";
  const fs::path place = denying_path(path, found);
  const std::string owner = name_of(found.st_uid);
  const std::string remedy = found.st_uid == geteuid()
                                 ? "to regain access: chmod u+rwX " + place.string()
                                 : "run gradmonctl as " + owner + ", or ask " + owner + " for access";
  return path.string() + ": permission denied to " + name_and_number(geteuid()) + ": " +
         (there ? "it" : place.string()) + " belongs to " + name_and_number(found.st_uid) + " and has mode " +
         mode_text(found.st_mode) + ": " + remedy;
}

// The transport. receive() returns the next frame, or none on a timeout.
struct CommandClient::Connection {
  virtual ~Connection() = default;
  virtual void send(const std::string& bytes) = 0;
  virtual std::optional<std::string> receive(milliseconds at_most) = 0;
  virtual std::string refusal() const { return ""; }
  virtual std::string hint() const { return ""; }
};

namespace {

// Connects to the hub of this host, and again after a restart of the hub.
class LocalConnection : public CommandClient::Connection {
 public:
  explicit LocalConnection(fs::path socket) : socket_(std::move(socket)) {}

  void send(const std::string& bytes) override {
    if (!stream_ && !connect()) return;
    if (!stream_->send(bytes)) stream_.reset();
  }

  std::optional<std::string> receive(milliseconds at_most) override {
    if (!frames_.empty()) return take();
    if (!stream_ && !connect()) {
      ::poll(nullptr, 0, static_cast<int>(std::min(at_most, milliseconds{50}).count()));
      return {};
    }
    pollfd polled{stream_->fd(), static_cast<short>(POLLIN | (stream_->wants_write() ? POLLOUT : 0)), 0};
    ::poll(&polled, 1, static_cast<int>(at_most.count()));
    stream_->flush();
    const auto read = stream_->read([this](std::string&& frame) { frames_.push_back(std::move(frame)); });
    if (read.state != FrameStream::Read::State::open) {
      stream_.reset();
      trouble_ = "the hub has closed the connection";
    }
    return frames_.empty() ? std::nullopt : std::optional(take());
  }

  std::string refusal() const override { return denial_; }
  std::string hint() const override { return trouble_; }

 private:
  bool connect() {
    auto fd = connect_unix(socket_);
    if (!fd) {
      trouble_ = fd.error();
      denial_ = access_denial(socket_, Access::connect);
      return false;
    }
    trouble_.clear();
    stream_ = std::make_unique<FrameStream>(*fd, FrameStream::Limits{kMaxFrameBytes, kMaxFrameBytes});
    return true;
  }
  std::string take() {
    std::string frame = std::move(frames_.front());
    frames_.erase(frames_.begin());
    return frame;
  }

  const fs::path socket_;
  std::unique_ptr<FrameStream> stream_;  // null: not connected
  std::vector<std::string> frames_;
  std::string trouble_;
  std::string denial_;
};

class RemoteConnection : public CommandClient::Connection {
 public:
  RemoteConnection(const std::string& endpoint, std::optional<ClientKeys> keys) : endpoint_(endpoint) {
    auto bus = Bus::make_client({kMaxFrameBytes}, std::move(keys));
    if (!bus) throw std::runtime_error(bus.error());
    bus_ = std::move(*bus);
    if (auto connected = bus_->connect(endpoint); !connected) throw std::runtime_error(connected.error());
  }
  void send(const std::string& bytes) override { bus_->send("", bytes); }
  std::optional<std::string> receive(milliseconds at_most) override {
    auto incoming = bus_->poll(at_most, -1);
    return incoming ? std::optional(std::move(incoming->bytes)) : std::nullopt;
  }
  std::string refusal() const override {
    const std::string why = bus_->refusal();
    return why.empty() ? "" : endpoint_ + ": " + why;
  }
  std::string hint() const override { return bus_->hint(); }

 private:
  const std::string endpoint_;
  std::unique_ptr<Bus> bus_;
};

}  // namespace

CommandClient::CommandClient(const std::string& endpoint, std::optional<ClientKeys> keys)
    : endpoint_(endpoint) {
  if (const auto socket = ipc_path(endpoint)) {
    connection_ = std::make_unique<LocalConnection>(*socket);
  } else {
    connection_ = std::make_unique<RemoteConnection>(endpoint, std::move(keys));
  }
}

CommandClient::~CommandClient() = default;

Result<CommandReply> CommandClient::ask(const Command& command, milliseconds timeout) {
  constexpr milliseconds repeat_after{1000};
  const auto deadline = Clock::now() + timeout;
  const std::string bytes = encode(Frame(command));
  if (bytes.size() > kMaxFrameBytes)
    return tl::unexpected("the command is " + std::to_string(bytes.size()) + " bytes long; the limit is " +
                          std::to_string(kMaxFrameBytes));
  auto repeat_at = Clock::now();
  for (auto now = Clock::now(); now < deadline; now = Clock::now()) {
    if (now >= repeat_at) {
      connection_->send(bytes);
      repeat_at = now + repeat_after;
    }
    const auto wait = std::chrono::ceil<milliseconds>(std::min(deadline, repeat_at) - now);
    const auto incoming = connection_->receive(wait);
    if (std::string why = connection_->refusal(); !why.empty())
      return failed_reply(CommandOutcome::not_allowed, std::move(why));
    if (!incoming) continue;
    if (auto answer = answer_in(*incoming, command.request_id)) return std::move(*answer);
  }
  const std::string hint = connection_->hint();
  return tl::unexpected(late(endpoint_, timeout) + (hint.empty() ? "" : ": " + hint));
}

namespace {

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

namespace {

constexpr std::chrono::milliseconds kDiskTime{1000};

JobEntry to_entry(const HubReplies::Answer& answer) {
  JobEntry entry;
  entry.epoch = answer.status.epoch;
  entry.launch_id = answer.status.launch_id;
  entry.name = answer.status.name;
  entry.host = host_name();
  entry.endpoint = answer.endpoint;
  entry.started = answer.status.started;
  return entry;
}

// Normalizes the path as text, without access to its disk.
std::string normal(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  std::string text = (error ? path : whole).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// The findings on the disk of a directory.
struct OnDisk {
  std::set<std::size_t> same;  // indices of `others` that are this directory under another path
  std::vector<JobEntry> entries;
  std::string denial;  // from access_denial()
};

// The first character of each piece of the child's answer; an entry begins with a brace.
constexpr char kSame = '=';
constexpr char kDenied = '!';

fs::path canonical_or_none(const fs::path& directory) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(directory, error);
  return error ? fs::path() : canonical;
}

std::string denial_in(const fs::path& directory) {
  for (const fs::path& place : {directory, directory / ".gradmon", directory / ".gradmon" / "jobs"}) {
    if (std::string denial = access_denial(place, Access::read); !denial.empty()) return denial;
  }
  return "";
}

std::optional<OnDisk> scan_directory(const fs::path& directory, const std::vector<std::string>& others) {
  const auto answer = run_in_child(
      [&] {
        std::string text;
        const fs::path wanted = canonical_or_none(directory);
        for (std::size_t i = 0; i < others.size() && !wanted.empty(); ++i) {
          if (canonical_or_none(others[i]) == wanted) text += kSame + std::to_string(i) + '\0';
        }
        for (const JobEntry& job : read_entries(directory)) text += to_text(job) + '\0';
        if (const std::string denial = denial_in(directory); !denial.empty()) text += kDenied + denial + '\0';
        return text;
      },
      kDiskTime);
  if (!answer) return {};
  OnDisk found;
  for (std::size_t at = 0, end = 0; (end = answer->find('\0', at)) != std::string::npos; at = end + 1) {
    const std::string piece = answer->substr(at, end - at);
    if (piece.front() == kSame) {
      found.same.insert(std::stoul(piece.substr(1)));
    } else if (piece.front() == kDenied) {
      found.denial = piece.substr(1);
    } else if (auto job = parse_entry(piece)) {
      found.entries.push_back(std::move(*job));
    }
  }
  return found;
}

bool has_ranks(const Status& status) {
  const auto has_gone = [](const RankStatus& rank) {
    return rank.state == "left" || rank.state == "dropped";
  };
  return status.ranks.empty() || !std::all_of(status.ranks.begin(), status.ranks.end(), has_gone);
}

// The jobs of the answers with the wanted indices.
LiveJobs jobs_in(const HubReplies& replies, const std::function<bool(std::size_t)>& is_wanted) {
  LiveJobs live;
  live.unanswered = replies.unresponsive;
  for (std::size_t i = 0; i < replies.answers.size(); ++i) {
    if (!is_wanted(i)) continue;
    live.jobs.push_back(to_entry(replies.answers[i]));
    if (!has_ranks(replies.answers[i].status)) live.ended.insert(replies.answers[i].endpoint);
  }
  return live;
}

std::vector<std::string> output_directories(const HubReplies& replies) {
  std::vector<std::string> directories;
  for (const HubReplies::Answer& answer : replies.answers) directories.push_back(answer.status.output_dir);
  return directories;
}

// Asks the hubs outside the job_bases() of this process: the hubs that `disk` has entries of, and the hubs of
// this user's processes. Adds their replies; returns false if no hubs remain.
bool ask_elsewhere(HubReplies& replies, const std::optional<OnDisk>& disk,
                   const std::function<bool(const Status&)>& wanted) {
  std::vector<JobDirectory> more = directories_of_hub_processes();
  for (const JobEntry& job : disk ? disk->entries : std::vector<JobEntry>()) {
    const auto socket = job.host == host_name() ? ipc_path(job.endpoint) : std::nullopt;
    JobDirectory directory{socket ? socket->parent_path() : fs::path()};
    if (socket && directory.socket() == *socket && directory.check()) more.push_back(std::move(directory));
  }
  const auto known = [&](const JobDirectory& each) {
    return std::any_of(replies.asked.begin(), replies.asked.end(),
                       [&](const JobDirectory& asked) { return asked.path == each.path; });
  };
  more.erase(std::remove_if(more.begin(), more.end(), known), more.end());
  if (more.empty()) return false;
  HubReplies found = query_hubs(std::move(more), wanted);
  std::move(found.answers.begin(), found.answers.end(), std::back_inserter(replies.answers));
  std::move(found.unresponsive.begin(), found.unresponsive.end(), std::back_inserter(replies.unresponsive));
  return true;
}

}  // namespace

std::function<bool(const Status&)> writes_into(const fs::path& output_dir) {
  return [wanted = normal(output_dir)](const Status& job) { return normal(job.output_dir) == wanted; };
}

LiveJobs live_jobs(const fs::path& output_dir) {
  return live_jobs(output_dir, query_hubs(find_job_directories().directories, writes_into(output_dir)));
}

LiveJobs live_jobs(const fs::path& output_dir, HubReplies replies) {
  LiveJobs live;
  const auto wanted = writes_into(output_dir);
  const auto take = [&](const std::function<bool(std::size_t)>& is_wanted) {
    live = jobs_in(replies, is_wanted);
    return !live.jobs.empty();
  };
  const auto has_path = [&](std::size_t i) { return wanted(replies.answers[i].status); };
  if (take(has_path)) return live;
  auto disk = scan_directory(output_dir, output_directories(replies));
  const auto has_same = [&](std::size_t i) { return disk && disk->same.count(i) != 0; };
  if (take(has_same)) return live;
  if (ask_elsewhere(replies, disk, wanted)) {
    if (take(has_path)) return live;
    if (disk) disk = scan_directory(output_dir, output_directories(replies));
    if (take(has_same)) return live;
  }
  if (!disk) live.unanswered.push_back("the disk of " + normal(output_dir) + " does not answer");
  if (!disk) return live;
  if (!disk->denial.empty()) live.denied.push_back(std::move(disk->denial));
  for (JobEntry& job : disk->entries) {
    if (job.host == host_name() || job.address.empty()) continue;
    job.endpoint = job.address;
    live.jobs.push_back(std::move(job));
  }
  return live;
}

LiveJobs jobs_of_this_host(const HubReplies& replies) {
  return jobs_in(replies, [](std::size_t) { return true; });
}

std::optional<bool> hub_is_listening(const std::string& endpoint) {
  const auto socket = ipc_path(endpoint);
  if (!socket) return {};
  const auto fd = connect_unix(*socket);
  if (!fd) return false;
  const Descriptor closed(*fd);
  return true;
}

}  // namespace gradmon
