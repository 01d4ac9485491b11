// SPDX-License-Identifier: Apache-2.0
#include "control/log.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace gradmon {
namespace {

constexpr const char* kVariable = "GRADMON_LOG";

// Returns none for an unknown word.
std::optional<spdlog::level::level_enum> parse_level(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto level = spdlog::level::from_str(word);
  if (level == spdlog::level::off && word != "off") return {};
  return level;
}

// While it exists, a write to a pipe without a reader fails instead of ending this process.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    constexpr timespec at_once{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

bool stderr_is_regular_file() {
  struct stat status {};
  return fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode);
}

// Writes at most PIPE_BUF bytes. XFS and btrfs answer EAGAIN to nearly every append with RWF_NOWAIT, because
// it changes the file's time. Readers cannot block a regular file, so a plain write follows there. Linux
// before 6.4 has no RWF_NOWAIT for pipes, and terminals have none: there POLLOUT must suffice, although
// another process may fill the pipe between poll() and write().
ssize_t write_some(const char* bytes, std::size_t size) {
  iovec part{const_cast<char*>(bytes), std::min<std::size_t>(size, PIPE_BUF)};
  const ssize_t written = pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT);
  if (written >= 0) return written;
  if (errno == EAGAIN && stderr_is_regular_file()) return write(STDERR_FILENO, bytes, part.iov_len);
  if (errno != EOPNOTSUPP && errno != ENOSYS) return written;
  pollfd polled{STDERR_FILENO, POLLOUT, 0};
  if (poll(&polled, 1, 0) <= 0 || (polled.revents & POLLOUT) == 0) return -1;
  return write(STDERR_FILENO, bytes, part.iov_len);
}

// Returns false if some bytes were not written.
bool write_without_waiting(const char* bytes, std::size_t size) {
  const NoSigpipe no_sigpipe;
  while (size > 0) {
    const ssize_t written = write_some(bytes, size);
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (dropped_ > 0) {
      const std::string gap =
          "gradmon: " + std::to_string(dropped_) + " log lines were dropped: stderr was not writable\n";
      if (write_without_waiting(gap.data(), gap.size())) dropped_ = 0;
    }
    if (!write_without_waiting(line.data(), line.size())) ++dropped_;
  }
  void flush_() override {}

 private:
  std::uint64_t dropped_ = 0;
};

// Leaked on purpose: threads may log while static objects are destroyed.
spdlog::logger& logger() {
  static spdlog::logger* const made = [] {
    auto* l = new spdlog::logger("gradmon", std::make_shared<StderrSink>());
    l->set_pattern("gradmon: %v");
    l->flush_on(spdlog::level::debug);
    const char* wanted = std::getenv(kVariable);
    const auto level = parse_level(wanted == nullptr ? "info" : wanted);
    l->set_level(level.value_or(spdlog::level::info));
    if (!level)
      l->warn("{}: unknown level \"{}\" (expected debug, info, warn, error or off)", kVariable, wanted);
    return l;
  }();
  return *made;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void (*instead)(LogLevel, std::string_view) = nullptr;

}  // namespace

void set_log_sink(void (*write)(LogLevel, std::string_view)) noexcept { instead = write; }

void log(LogLevel level, std::string_view text) noexcept {
  if (instead != nullptr) return instead(level, text);
  try {
    logger().log(to_spdlog(level), "{}", text);
  } catch (...) {  // An error, such as a full disk behind stderr, must not reach training.
  }
}

}  // namespace gradmon
