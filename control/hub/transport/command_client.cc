// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/command_client.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "control/host/frame_stream.h"
#include "control/hub/transport/bus.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

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
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(found.st_mode & 07777U));
  const std::string owner = name_of(found.st_uid);
  const std::string remedy = found.st_uid == geteuid()
                                 ? "to regain access: chmod u+rwX " + place.string()
                                 : "run gradmonctl as " + owner + ", or ask " + owner + " for access";
  return path.string() + ": permission denied to " + name_and_number(geteuid()) + ": " +
         (there ? "it" : place.string()) + " belongs to " + name_and_number(found.st_uid) + " and has mode " +
         mode.data() + ": " + remedy;
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
  explicit LocalConnection(std::filesystem::path socket) : socket_(std::move(socket)) {}

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

  const std::filesystem::path socket_;
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

tl::expected<CommandReply, std::string> CommandClient::ask(const Command& command, milliseconds timeout) {
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

}  // namespace gradmon
