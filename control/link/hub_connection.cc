// SPDX-License-Identifier: Apache-2.0
#include "control/link/hub_connection.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "control/host/child_process.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr int kFree = -1;
constexpr milliseconds kRetryPause{20};
constexpr milliseconds kSlowRetryPause{1000};
constexpr int kFastRetries = 100;
constexpr std::size_t kLosses = 3;
constexpr std::chrono::seconds kLossesWithin{10};
// Pauses between two starts, because the hub started before may not listen yet.
constexpr milliseconds kFirstStartPause{100};
constexpr milliseconds kMaxStartPause{1000};
constexpr std::chrono::seconds kStartHangs{5};  // more than HubCommand::most_wait
// Room for a Hello with the plan that this rank holds, beside other queued frames.
constexpr std::size_t kMostUnread = 2 * kMaxFrameBytes;

// Never destroyed, because a process may fork during its exit.
std::array<std::atomic<int>, 64>& slots() {
  static auto* const made = [] {
    auto* all = new std::array<std::atomic<int>, 64>;
    for (auto& slot : *all) slot = kFree;
    return all;
  }();
  return *made;
}

void in_child() {
  for (auto& slot : slots()) {
    if (const int fd = slot.exchange(kFree); fd != kFree) close(fd);
  }
}

}  // namespace

ClosedInChildren::ClosedInChildren(int fd) {
  static const int registered = pthread_atfork(nullptr, nullptr, in_child);
  (void)registered;
  for (int slot = 0; slot < static_cast<int>(slots().size()); ++slot) {
    int expected = kFree;
    if (!slots()[static_cast<std::size_t>(slot)].compare_exchange_strong(expected, fd)) continue;
    slot_ = slot;
    return;
  }
}

ClosedInChildren::~ClosedInChildren() {
  if (slot_ >= 0) slots()[static_cast<std::size_t>(slot_)] = kFree;
}

HubConnection::Settings HubConnection::read_settings(const EnvironmentLookup& environment) {
  return {job_bases(environment), find_hub_program(environment), hub_environment()};
}

HubConnection::HubConnection(std::string launch_id, Settings settings, milliseconds before_starting)
    : launch_id_(std::move(launch_id)),
      settings_(std::move(settings)),
      before_starting_(before_starting),
      next_start_(Clock::now() + before_starting) {}

bool HubConnection::poll_connect(Clock::time_point now) {
  if (stream_) return false;
  check_start(now);
  if (now < next_try_) return false;
  const auto connected = try_to_connect(now);
  trouble_ = connected ? "" : connected.error();
  if (!connected) pause_before_next_try(now);
  if (connected) welcomed_ = false;
  return connected.has_value();
}

void HubConnection::pause_before_next_try(Clock::time_point now) {
  if (!start_.under_way() || start_hangs_) ++tries_;
  next_try_ = now + (tries_ < kFastRetries ? kRetryPause : kSlowRetryPause);
}

void HubConnection::welcomed() {
  welcomed_ = true;
  tries_ = starts_ = failed_starts_ = 0;
  start_hangs_ = false;  // A start that still hangs counts once this connection is lost.
  start_error_.clear();
}

bool HubConnection::keeps_failing() {
  const bool failing = losses_.size() == kLosses && losses_.back() - losses_.front() <= kLossesWithin;
  if (failing) losses_.clear();
  return failing;
}

Result<void> HubConnection::try_to_connect(Clock::time_point now) {
  auto directory = make_job_directory(launch_id_, settings_.bases);
  if (!directory) return tl::unexpected(directory.error());
  auto fd = connect_unix(directory->socket());
  // Finds a hub that was started in another environment, or before the runtime directory existed again.
  for (const auto& base : settings_.bases.all()) {
    const JobDirectory other{base / directory->path.filename()};
    if (fd || other.path == directory->path || !other.check()) continue;
    auto there = connect_unix(other.socket());
    if (!there) continue;
    fd = there;
    directory = other;
  }
  if (!fd) {
    if (now >= next_start_ && !start_.under_way()) begin_start(*directory, now);
    if (!start_error_.empty()) return tl::unexpected(start_error_);
    return tl::unexpected(start_.under_way() ? settings_.program->string() + ": is being started"
                                             : fd.error());
  }
  Descriptor socket(*fd);
  const auto uid = peer_uid(socket.get());
  if (!uid) return tl::unexpected(uid.error());
  if (*uid != geteuid()) {
    return tl::unexpected(directory->socket().string() + ": the hub belongs to uid " + std::to_string(*uid) +
                          "; expected uid " + std::to_string(geteuid()) + " (the current user)");
  }
  closed_in_children_.emplace(socket.get());
  stream_ = std::make_unique<FrameStream>(socket.release(), FrameStream::Limits{kMaxFrameBytes, kMostUnread});
  return {};
}

void HubConnection::begin_start(const JobDirectory& directory, Clock::time_point now) {
  next_start_ = now + std::min(kFirstStartPause * (1 << std::min(starts_, 4)), kMaxStartPause);
  if (!settings_.program) return end_start(settings_.program.error());
  start_begun_ = now;
  start_.begin([command = HubCommand{*settings_.program, directory, {launch_id_}, settings_.environment}] {
    return start_hub(command);
  });
}

// A start that has ended, or hangs, makes the next try due.
void HubConnection::check_start(Clock::time_point now) {
  if (const auto started = start_.poll()) {
    end_start(*started ? "" : started->error());
    next_try_ = {};
  } else if (start_.under_way() && !start_hangs_ && now - start_begun_ >= kStartHangs) {
    start_hangs_ = true;
    start_error_ = settings_.program->string() + ": has not started within " +
                   std::to_string(kStartHangs.count()) + " s: its disk may not answer";
    next_try_ = {};
  }
}

void HubConnection::end_start(std::string error) {
  starts_ += 1;
  failed_starts_ += error.empty() ? 0 : 1;
  start_hangs_ = false;
  start_error_ = std::move(error);
}

bool HubConnection::send(std::string_view frame) { return stream_ && stream_->send(frame); }

bool HubConnection::process_io(const FrameStream::OnFrame& on_frame,
                               const std::function<void()>& before_closing) {
  if (!stream_) return false;
  stream_->flush();
  const auto read = stream_->read(on_frame);
  if (read.state == FrameStream::Read::State::open) return true;
  if (read.state == FrameStream::Read::State::broken) before_closing();
  on_disconnect(read.reason.empty() ? "the hub has gone" : read.reason, Clock::now());
  return false;
}

void HubConnection::on_disconnect(std::string why, Clock::time_point now) {
  closed_in_children_.reset();
  stream_.reset();
  trouble_ = std::move(why);
  if (losses_.size() == kLosses) losses_.erase(losses_.begin());
  losses_.push_back(now);
  next_try_ = {};
  if (!welcomed_) pause_before_next_try(now);
  next_start_ = std::max(next_start_, now + before_starting_);
}

namespace {

using Problem = tl::unexpected<std::string>;
using Clock = std::chrono::steady_clock;

constexpr char kName[] = "gradmon-hub";

bool runnable(const fs::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

Result<void> check_exit_status(const std::string& program, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const bool exited = WIFEXITED(status);
  return Problem(program + (exited ? ": exited with status " : ": was killed by signal ") +
                 std::to_string(exited ? WEXITSTATUS(status) : WTERMSIG(status)));
}

// True if the process has ended. ECHILD counts as ended: other code has reaped the process, or the program
// ignores SIGCHLD. `status` is then unchanged.
bool has_ended(pid_t pid, int& status) {
  pid_t got = 0;
  do {
    got = ::waitpid(pid, &status, WNOHANG);
  } while (got < 0 && errno == EINTR);
  return got != 0;
}

bool ends_within(std::chrono::milliseconds most_wait, pid_t pid, int& status) {
  const auto deadline = Clock::now() + most_wait;
  for (int nap = 1;; nap = std::min(2 * nap, 20)) {
    if (has_ended(pid, status)) return true;
    if (Clock::now() >= deadline) return false;
    ::poll(nullptr, 0, nap);
  }
}

Result<void> spawn_and_wait(const HubCommand& command) {
  const std::string program = command.program.string();
  std::vector<std::string> arguments{program, command.directory.path.string()};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  SpawnOptions options;
  options.new_session = true;
  pid_t pid = 0;
  const int error =
      spawn(program, exec_pointers(arguments), exec_pointers(command.environment).data(), options, pid);
  if (error != 0) return Problem("cannot start " + program + ": " + std::generic_category().message(error));

  int status = 0;
  if (ends_within(command.most_wait, pid, status)) return check_exit_status(program, status);
  ::kill(pid, SIGKILL);
  ends_within(std::chrono::milliseconds(100), pid, status);
  return Problem(program + ": did not daemonise within " + std::to_string(command.most_wait.count()) +
                 " ms: killed");
}

}  // namespace

fs::path own_object() {
  Dl_info ours{};
  Dl_info program{};
  std::error_code error;
  if (::dladdr(reinterpret_cast<const void*>(&own_object), &ours) == 0) return {};
  // For the program itself dladdr returns argv[0], which need not be a path.
  const bool known = ::dladdr(reinterpret_cast<const void*>(::getauxval(AT_PHDR)), &program) != 0;
  const bool in_program = !known || program.dli_fbase == ours.dli_fbase;
  const fs::path object = fs::canonical(in_program ? "/proc/self/exe" : ours.dli_fname, error);
  return error ? fs::path() : object;
}

Result<fs::path> find_hub_program(const EnvironmentLookup& environment, const fs::path& object) {
  std::string tried;
  if (!object.empty()) {
    const fs::path directory = object.parent_path();
    for (const fs::path& place : {directory, directory.parent_path(), directory.parent_path() / "bin",
                                  directory.parent_path() / "lib"}) {
      fs::path file = place / kName;
      if (runnable(file)) return file;
      tried += (tried.empty() ? "tried " : ", ") + file.string();
    }
  }
  const auto named = environment("GRADMON_HUB");
  if (named && fs::path(*named).is_absolute() && runnable(*named)) return fs::path(*named);
  const std::string why = std::string(kName) + " not found: " + tried + (tried.empty() ? "" : "; ");
  if (named && !named->empty())
    return Problem(why + "GRADMON_HUB=\"" + *named + "\" is not the absolute path of an executable");
  return Problem(why + "set GRADMON_HUB to its absolute path");
}

std::vector<std::string> hub_environment() {
  std::vector<std::string> kept;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string text = *entry;
    if (text.rfind("LD_PRELOAD=", 0) != 0) kept.push_back(std::move(text));
  }
  return kept;
}

Result<void> start_hub(const HubCommand& command) noexcept {
  try {
    return spawn_and_wait(command);
  } catch (...) {
    return Problem(std::string("out of memory"));  // Short enough for std::string's internal buffer.
  }
}

}  // namespace gradmon
