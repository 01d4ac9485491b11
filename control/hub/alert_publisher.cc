// SPDX-License-Identifier: Apache-2.0
#include "control/hub/alert_publisher.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "control/alerts/alert_report.h"
#include "control/host/child_process.h"
#include "control/host/unix_stream.h"
#include "control/log.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

// See publish_packets().
std::string encode_packet(const Alert& alert) {
  return alert.rule + '\0' + to_json(alert).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void AlertPublisher::publish(const std::vector<Alert>& alerts) {
  if (settings_.program.empty()) return;
  for (const Alert& alert : alerts) {
    const std::string packet = encode_packet(alert);
    const ssize_t sent =
        alerts_.valid() ? ::send(alerts_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                        : -1;
    if (sent < 0) ++dropped_;
  }
}

void AlertPublisher::tend(Clock::time_point now, bool wanted) {
  if (settings_.program.empty()) return;
  reap();
  if (publisher_ <= 0 && !wanted) return;
  const bool pauses = started_ && now - *started_ < kRestartAfter;
  if (pauses) return;
  if (publisher_ > 0) {
    const std::string why = fault(now);
    if (why.empty()) return;
    stop(why);
  }
  started_ = now;
  start();
}

// The reason to restart the running publisher, or "".
std::string AlertPublisher::fault(Clock::time_point now) {
  struct stat socket {};
  if (::lstat(settings_.socket.c_str(), &socket) != 0) return "its socket was removed";
  const std::pair found{socket.st_dev, socket.st_ino};
  if (!bound_) bound_ = found;
  if (*bound_ != found) return "its socket was replaced";
  pollfd room{alerts_.get(), POLLOUT, 0};
  if (::poll(&room, 1, 0) == 1) {
    full_since_.reset();
  } else if (!full_since_) {
    full_since_ = now;
  }
  return full_since_ && now - *full_since_ >= kStuckAfter ? "it has taken no alert for a while" : "";
}

void AlertPublisher::start() {
  ::unlink(settings_.socket.c_str());  // an earlier publisher's
  full_since_.reset();
  bound_.reset();
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    trouble_ = std::strerror(errno);
    return;
  }
  Descriptor own(ends[0]);
  const Descriptor other(ends[1]);
  SpawnOptions options;
  options.input = other.get();
  pid_t pid = -1;
  const std::vector<std::string> arguments{"gradmonctl", "alerts", "--publish", settings_.socket.string()};
  const int code = spawn(settings_.program.string(), exec_pointers(arguments), ::environ, options, pid);
  if (code != 0) {
    trouble_ = settings_.program.string() + ": " + std::strerror(code);
    return;
  }
  publisher_ = pid;
  alerts_ = std::move(own);
}

void AlertPublisher::reap() {
  int status = 0;
  if (publisher_ <= 0 || ::waitpid(publisher_, &status, WNOHANG) != publisher_) {
    if (publisher_ > 0) trouble_.clear();
    return;
  }
  trouble_ = WIFSIGNALED(status) ? "the publisher was killed by signal " + std::to_string(WTERMSIG(status))
                                 : "the publisher exited with status " + std::to_string(WEXITSTATUS(status));
  log_warn("alerts: " + trouble_);
  publisher_ = -1;
  alerts_.reset();
}

void AlertPublisher::stop(const std::string& why) {
  log_warn("alerts: the publisher is started anew: " + why);
  end_child(publisher_);
  publisher_ = -1;
  alerts_.reset();
}

// The publisher ends by itself when its input ends. No wait is needed: this process ends, too.
void AlertPublisher::close() { alerts_.reset(); }

std::string AlertPublisher::endpoint() const {
  return publisher_ > 0 && alerts_.valid() ? ipc_endpoint(settings_.socket) : "";
}

std::vector<std::string> AlertPublisher::warnings() const {
  std::vector<std::string> lines;
  if (!trouble_.empty()) lines.push_back("alerts are not published: " + trouble_);
  if (dropped_ > 0)
    lines.push_back(std::to_string(dropped_) + (dropped_ == 1 ? " alert was" : " alerts were") +
                    " not published (gradmonctl alerts lists them)");
  return lines;
}

}  // namespace gradmon
