// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_hub.h"

#include <poll.h>
#include <signal.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

#include "control/client/command_client.h"
#include "control/files/descriptor.h"
#include "control/host/job_directory.h"
#include "control/host/process_identity.h"
#include "control/host/unix_socket.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Level = Finding::Level;
using std::chrono::milliseconds;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kNeeded = kMiB;      // a decision log and the start of the hub's log
constexpr std::uint64_t kWanted = 8 * kMiB;  // both logs at full size, for several jobs
constexpr milliseconds kConnectTime{10'000};
constexpr milliseconds kAnswerWithin{2000};
constexpr milliseconds kNap{20};
constexpr const char* kOtherBase =
    "set XDG_RUNTIME_DIR to a directory of yours with mode 0700 and a short path";

// Owns a temporary job directory; the destructor removes it.
class TrialJob {
 public:
  explicit TrialJob(JobDirectory directory) : directory_(std::move(directory)) {}
  ~TrialJob() {
    std::error_code error;
    fs::remove_all(directory_.path, error);
  }
  TrialJob(const TrialJob&) = delete;
  TrialJob& operator=(const TrialJob&) = delete;

  const JobDirectory& directory() const { return directory_; }

 private:
  const JobDirectory directory_;
};

Finding examine_base(const fs::path& base) {
  struct statvfs status {};
  if (statvfs(base.c_str(), &status) != 0)
    return {Level::fail, "job directories", base.string() + ": " + std::strerror(errno), kOtherBase};
  return check_free_space(
      base, {std::uint64_t{status.f_bavail} * status.f_frsize, status.f_files == 0 || status.f_favail > 0});
}

// Kills the hub of a job directory; its command line names the directory.
void kill_hub_of(const JobDirectory& directory) {
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    const int pid = std::atoi(process->path().filename().c_str());
    if (pid > 1 && has_argument(process->path() / "cmdline", directory.path)) kill(pid, SIGKILL);
  }
}

// A connection to the hub of a job directory. The destructor kills the hub, connected or not, and waits
// for its end.
class TrialHub {
 public:
  explicit TrialHub(const JobDirectory& directory) : directory_(directory) {
    const fs::path socket = directory.socket();
    for (auto waited = milliseconds{0}; waited < kConnectTime; waited += kNap) {
      auto fd = connect_unix(socket);
      if (fd) {
        connection_.reset(*fd);
        return;
      }
      problem_ = fd.error();
      ::poll(nullptr, 0, static_cast<int>(kNap.count()));
    }
  }
  ~TrialHub() {
    kill_hub_of(directory_);
    if (!connection_.valid()) return;
    pollfd closed{connection_.get(), POLLIN, 0};  // The stream closes when the process ends.
    ::poll(&closed, 1, static_cast<int>(kConnectTime.count()));
  }
  TrialHub(const TrialHub&) = delete;
  TrialHub& operator=(const TrialHub&) = delete;

  bool connected() const { return connection_.valid(); }
  const std::string& problem() const { return problem_; }

 private:
  const JobDirectory& directory_;
  Descriptor connection_;
  std::string problem_;
};

Finding failed_start(const fs::path& program, const std::string& why) {
  return {Level::fail, "hub", program.string() + " does not start: " + why,
          "run it by hand to see what it misses; without a hub nothing can be switched on"};
}

Finding examine_program(const fs::path& program, const JobDirectory& directory) {
  const std::string launch_id = directory.path.filename().string();
  if (const auto started = start_hub({program, directory, {launch_id}, hub_environment()}); !started)
    return failed_start(program, started.error());
  const TrialHub hub(directory);
  if (!hub.connected()) return failed_start(program, hub.problem());
  Command question;
  question.request_id = random_hex(16);
  const auto reply = CommandClient("ipc://" + directory.socket().string()).ask(question, kAnswerWithin);
  if (!reply) return failed_start(program, reply.error());
  return {Level::ok, "hub", program.string() + " starts and answers", ""};
}

}  // namespace

bool has_argument(const fs::path& command_line, const std::string& argument) {
  std::ifstream file(command_line);
  for (std::string word; std::getline(file, word, '\0');)
    if (word == argument) return true;
  return false;
}

Finding check_free_space(const fs::path& base, const FreeSpace& room) {
  Finding finding{Level::ok, "job directories",
                  base.string() + ": mode 0700, " + std::to_string(room.free_bytes / kMiB) + " MiB free", ""};
  if (room.files && room.free_bytes >= kWanted) return finding;
  finding.level = room.files && room.free_bytes >= kNeeded ? Level::warn : Level::fail;
  if (!room.files) finding.text = base.string() + ": no more files can be made there";
  finding.remedy = std::string("make room: the hub keeps its decisions there; or ") + kOtherBase;
  return finding;
}

Findings examine_hub(const EnvironmentLookup& environment, const fs::path& object) {
  Findings findings;
  const fs::path base = job_bases(environment).preferred();
  std::optional<TrialJob> trial;
  if (auto made = make_job_directory("doctor-" + random_hex(8), job_bases(environment))) {
    trial.emplace(std::move(*made));
    findings.push_back(examine_base(base));
  } else {
    findings.push_back({Level::fail, "job directories", made.error(), kOtherBase});
  }
  const auto program = find_hub_program(environment, object);
  if (!program) {
    findings.push_back({Level::fail, "hub", program.error(),
                        "install gradmon-hub beside gradmon's library, or set GRADMON_HUB to its path"});
  } else if (trial) {
    findings.push_back(examine_program(*program, trial->directory()));
  } else {
    findings.push_back(
        {Level::warn, "hub", program->string() + " is there, but has no directory to start in", ""});
  }
  return findings;
}

}  // namespace gradmon
