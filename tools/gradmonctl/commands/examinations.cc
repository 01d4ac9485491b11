// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/examinations.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "control/config/config_parser.h"
#include "control/config/file_watch.h"
#include "control/files/descriptor.h"
#include "control/host/child_process.h"
#include "control/host/job_directory.h"
#include "control/host/unix_socket.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/curve_keys.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/config_text.h"

namespace gradmon {

std::string_view name_of(CheckResult::Level level) {
  return level == CheckResult::Level::ok ? "ok" : level == CheckResult::Level::warn ? "warn" : "fail";
}

CheckResult::Level worst(const CheckResults& findings) {
  CheckResult::Level level = CheckResult::Level::ok;
  for (const CheckResult& finding : findings) level = std::max(level, finding.level);
  return level;
}

std::string findings_text(const CheckResults& findings) {
  std::size_t width = 0;
  for (const CheckResult& finding : findings) width = std::max(width, finding.check.size());
  std::string text;
  for (const CheckResult& finding : findings) {
    std::string level(name_of(finding.level));
    level.resize(6, ' ');
    const std::string margin = '\n' + std::string(width + 8, ' ');
    text += level + finding.check + std::string(width - finding.check.size() + 2, ' ') +
            printable_lines(finding.text, margin);
    if (!finding.remedy.empty()) text += margin + "→ " + printable_lines(finding.remedy, margin + "  ");
    text += '\n';
  }
  return text;
}

std::string findings_json(const CheckResults& findings) {
  OrderedJson list = OrderedJson::array();
  for (const CheckResult& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"level", name_of(finding.level)},
                    {"text", finding.text},
                    {"remedy", text_or_null(finding.remedy)}});
  }
  const OrderedJson json{{"schema_version", kJsonSchemaVersion},
                         {"level", name_of(worst(findings))},
                         {"findings", std::move(list)}};
  return json_text(json, JsonLayout::indented);
}

using Level = CheckResult::Level;

CheckResult examine_config_file(const std::string& file, ConfigNamed named) {
  const auto text = read_config_text(file);
  if (!text) {
    const bool needed = named == ConfigNamed::by_option;
    return {needed ? Level::fail : Level::warn, "config", text.error(), "name the config file with --config"};
  }
  const auto parsed = parse_config(*text, file);
  if (!parsed) {
    return {Level::fail, "config", to_string(parsed.error()),
            "correct the file, then run gradmonctl validate " + file};
  }
  if (parsed->warnings.empty()) return {Level::ok, "config", file + ": valid", ""};
  std::string warnings;
  for (const ConfigWarning& warning : parsed->warnings)
    warnings += (warnings.empty() ? "" : "\n") + to_string(warning);
  return {Level::warn, "config", warnings, "the file is valid all the same"};
}

namespace {

namespace fs = std::filesystem;

constexpr int kEventWaitMs = 1000;

struct Magic {
  std::uint32_t number;
  const char* name;
};
// linux/magic.h has no constants for the types given by number.
constexpr std::array<Magic, 18> kMagics{{{EXT4_SUPER_MAGIC, "ext4"},
                                         {XFS_SUPER_MAGIC, "xfs"},
                                         {BTRFS_SUPER_MAGIC, "btrfs"},
                                         {TMPFS_MAGIC, "tmpfs"},
                                         {OVERLAYFS_SUPER_MAGIC, "overlay"},
                                         {NFS_SUPER_MAGIC, "nfs"},
                                         {SMB_SUPER_MAGIC, "smb"},
                                         {0xFF534D42, "cifs"},
                                         {0xFE534D42, "smb2"},
                                         {FUSE_SUPER_MAGIC, "fuse"},
                                         {V9FS_MAGIC, "9p"},
                                         {CEPH_SUPER_MAGIC, "ceph"},
                                         {AFS_SUPER_MAGIC, "afs"},
                                         {0x0BD00BD0, "lustre"},
                                         {0x47504653, "gpfs"},
                                         {0x19830326, "beegfs"},
                                         {0x2FC12FC1, "zfs"},
                                         {PROC_SUPER_MAGIC, "proc"}}};

// The names of two temporary files. The constructor creates the first file; the
// destructor removes both.
class ProbeFiles {
 public:
  explicit ProbeFiles(const fs::path& directory) : name_((directory / ".gradmon-doctor-XXXXXX").string()) {
    const int fd = mkostemp(name_.data(), O_CLOEXEC);
    cause_ = errno;
    made_ = fd >= 0;
    if (made_) close(fd);
  }
  ~ProbeFiles() {
    if (!made_) return;
    unlink(name_.c_str());
    unlink(other().c_str());
  }
  ProbeFiles(const ProbeFiles&) = delete;
  ProbeFiles& operator=(const ProbeFiles&) = delete;

  bool made() const { return made_; }
  int cause() const { return cause_; }
  const std::string& one() const { return name_; }
  std::string other() const { return name_ + "-2"; }

 private:
  std::string name_;
  bool made_ = false;
  int cause_ = 0;
};

bool watch_works(const ProbeFiles& files) {
  FileWatch watch(files.other());
  if (watch.fd() < 0) return false;
  watch.update_watches();
  if (rename(files.one().c_str(), files.other().c_str()) != 0) return false;
  pollfd readable{watch.fd(), POLLIN, 0};
  const bool came = poll(&readable, 1, kEventWaitMs) == 1 && !watch.read_events().empty();
  return rename(files.other().c_str(), files.one().c_str()) == 0 && came;
}

}  // namespace

std::string file_system_type(const fs::path& path) {
  struct statfs status {};
  if (statfs(path.c_str(), &status) != 0) return {};
  const auto number = static_cast<std::uint32_t>(status.f_type);
  const auto* known = std::find_if(kMagics.begin(), kMagics.end(),
                                   [&](const Magic& magic) { return magic.number == number; });
  if (known != kMagics.end()) return known->name;
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", number);
  return text.data();
}

bool is_network_file_system(const std::string& kind) {
  static const std::set<std::string> kinds{"nfs",  "smb", "cifs",   "smb2", "fuse",  "9p",
                                           "ceph", "afs", "lustre", "gpfs", "beegfs"};
  return kinds.count(kind) != 0;
}

tl::expected<DirectoryCapabilities, std::string> probe_directory(const fs::path& directory) {
  const ProbeFiles files(directory);
  if (!files.made())
    return tl::unexpected("no file can be made in " + directory.string() + ": " +
                          std::strerror(files.cause()));
  DirectoryCapabilities trial;
  trial.watch = watch_works(files);
  close(open(files.other().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  trial.exchange =
      renameat2(AT_FDCWD, files.one().c_str(), AT_FDCWD, files.other().c_str(), RENAME_EXCHANGE) == 0;
  return trial;
}

namespace {

namespace fs = std::filesystem;

CheckResult examine_watch(bool works, bool network) {
  if (!works) {
    return {Level::warn, "config watch", "a save raises no event: the file is polled once a second",
            "nothing is lost; for an immediate reaction put the config file on a local disk"};
  }
  if (network) {
    return {Level::warn, "config watch",
            "saves made on this host are seen at once, those of other hosts are polled",
            "nothing is lost; for an immediate reaction save on the host of rank 0, or use gradmonctl set"};
  }
  return {Level::ok, "config watch", "a save is seen at once", ""};
}

CheckResult examine_exchange(bool works) {
  if (works) return {Level::ok, "config write-back", "files can be exchanged: no save is lost", ""};
  return {Level::warn, "config write-back",
          "files cannot be exchanged: a save during a write-back can be lost",
          "\"write_back\": false leaves the file alone; or put it on a file system with RENAME_EXCHANGE"};
}

std::string mode_text(mode_t mode) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0%o", static_cast<unsigned>(mode & 07777U));
  return text.data();
}

// Users who can write to the directory can remove or replace the job's output.
CheckResult examine_output_mode(const fs::path& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return {Level::warn, "output mode", std::strerror(errno), ""};
  CheckResult finding{Level::ok, "output mode", mode_text(status.st_mode), ""};
  if ((status.st_mode & S_IWOTH) != 0) {
    finding.level = Level::warn;
    finding.text += ": everybody can write there, and remove or replace the job's output";
    finding.remedy = "chmod o-w " + directory.string();
  } else if (status.st_uid != geteuid() && status.st_uid != 0) {
    finding.level = Level::warn;
    finding.text += ": it is another user's";
    finding.remedy = "choose one of your own with MONITOR_OUTPUT_DIR";
  }
  return finding;
}

}  // namespace

CheckResults examine_config_directory(const fs::path& directory) {
  const std::string kind = file_system_type(directory);
  if (kind.empty()) {
    const std::string why = std::strerror(errno);
    if (std::string denial = access_denial(directory, Access::read); !denial.empty())
      return {{Level::fail, "config directory", std::move(denial), ""}};
    return {{Level::fail, "config directory", directory.string() + ": " + why,
             "make it, or name the config file with --config"}};
  }
  CheckResults findings{{Level::ok, "config directory", directory.string() + " on " + kind, ""}};
  const auto trial = probe_directory(directory);
  if (!trial) {
    findings.push_back({Level::warn, "config write-back", trial.error(),
                        "gradmon cannot update the file; see gradmonctl status instead"});
    return findings;
  }
  findings.push_back(examine_watch(trial->watch, is_network_file_system(kind)));
  findings.push_back(examine_exchange(trial->exchange));
  return findings;
}

CheckResults examine_output_directory(const fs::path& directory) {
  const std::string kind = file_system_type(directory);
  if (kind.empty() && errno == ENOENT)
    return {
        {Level::ok, "output directory", directory.string() + " does not exist yet; the job creates it", ""}};
  if (kind.empty()) {
    const std::string why = std::strerror(errno);
    const std::string denial = access_denial(directory, Access::read);
    return {{Level::fail, "output directory", denial.empty() ? directory.string() + ": " + why : denial,
             "choose another one with MONITOR_OUTPUT_DIR"}};
  }
  CheckResults findings{{Level::ok, "output directory", directory.string() + " on " + kind, ""},
                        examine_output_mode(directory)};
  const auto trial = probe_directory(directory);
  if (!trial) {
    findings.push_back(
        {Level::fail, "output files", trial.error(), "choose another one with MONITOR_OUTPUT_DIR"});
  }
  return findings;
}

CheckResult examine_keys(const fs::path& directory) {
  const auto client = read_operator_keys(directory);
  if (!client) return {Level::fail, "keys", client.error(), ""};
  std::error_code error;
  if (!fs::exists(directory / "server.secret", error))
    return {Level::ok, "keys", directory.string() + ": client keys are valid", ""};
  const auto server = read_server_keys(directory);
  if (!server) return {Level::fail, "keys", server.error(), ""};
  return {Level::ok, "keys", directory.string() + ": server and client keys are valid", ""};
}

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSpareDescriptors = 16;  // for the connection to the hub and the output files

std::int64_t number_in(const fs::path& file) {
  std::int64_t number = 0;
  std::ifstream(file) >> number;
  return number;
}

std::int64_t count_watches(const fs::path& fdinfo) {
  std::int64_t watches = 0;
  std::ifstream file(fdinfo);
  for (std::string line; std::getline(file, line);) watches += line.rfind("inotify ", 0) == 0 ? 1 : 0;
  return watches;
}

void add_process(const fs::path& process, InotifyUse& use) {
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error)) {
    std::error_code gone;
    if (fs::read_symlink(fd->path(), gone) != "anon_inode:inotify") continue;
    use.instances += 1;
    use.watches += count_watches(process / "fdinfo" / fd->path().filename());
  }
}

std::string of(std::int64_t used, std::int64_t most) {
  return std::to_string(used) + " of " + std::to_string(most);
}

}  // namespace

InotifyUse inotify_use() {
  InotifyUse use;
  use.most_instances = number_in("/proc/sys/fs/inotify/max_user_instances");
  use.most_watches = number_in("/proc/sys/fs/inotify/max_user_watches");
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    const std::string name = process->path().filename();
    struct stat status {};
    const bool ours = name.find_first_not_of("0123456789") == std::string::npos &&
                      stat(process->path().c_str(), &status) == 0 && status.st_uid == geteuid();
    if (ours) add_process(process->path(), use);
  }
  return use;
}

CheckResult examine_inotify(const InotifyUse& use) {
  CheckResult finding{CheckResult::Level::ok, "inotify",
                      of(use.instances, use.most_instances) + " instances and " +
                          of(use.watches, use.most_watches) + " watches are in use by this user",
                      ""};
  if (use.instances < use.most_instances && use.watches + 8 <= use.most_watches) return finding;
  finding.level = CheckResult::Level::warn;
  finding.remedy =
      "the file is polled once a second instead; root can raise fs.inotify.max_user_instances and "
      "fs.inotify.max_user_watches with sysctl";
  return finding;
}

std::optional<DescriptorUse> descriptor_use(std::int64_t pid) {
  const fs::path process = fs::path("/proc") / std::to_string(pid);
  DescriptorUse use;
  std::ifstream limits(process / "limits");
  for (std::string line; std::getline(limits, line);) {
    constexpr const char* name = "Max open files";
    if (line.rfind(name, 0) == 0)
      std::istringstream(line.substr(std::char_traits<char>::length(name))) >> use.soft >> use.hard;
  }
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error))
    use.open += 1;
  return error || use.soft == 0 ? std::nullopt : std::optional<DescriptorUse>(use);
}

CheckResult examine_descriptors(const std::string& whose, const DescriptorUse& use) {
  CheckResult finding{CheckResult::Level::ok, "descriptors of " + whose,
                      of(use.open, use.soft) + " are open (hard limit " + std::to_string(use.hard) + ")", ""};
  if (use.soft - use.open >= kSpareDescriptors) return finding;
  finding.level = CheckResult::Level::warn;
  finding.remedy =
      "with fewer than " + std::to_string(kSpareDescriptors) +
      " free descriptors gradmon may not reach its hub and then stays off; raise the limit with ulimit -n";
  return finding;
}

namespace {

namespace fs = std::filesystem;
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

CheckResult examine_base(const fs::path& base) {
  struct statvfs status {};
  if (statvfs(base.c_str(), &status) != 0)
    return {Level::fail, "job directories", base.string() + ": " + std::strerror(errno), kOtherBase};
  return check_free_space(
      base, {std::uint64_t{status.f_bavail} * status.f_frsize, status.f_files == 0 || status.f_favail > 0});
}

// Kills the hub of a job directory; its command line names the directory.
void kill_hub(const JobDirectory& directory) {
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
    kill_hub(directory_);
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

CheckResult failed_start(const fs::path& program, const std::string& why) {
  return {Level::fail, "hub", program.string() + " does not start: " + why,
          "run it by hand to see what it misses; without a hub nothing can be switched on"};
}

CheckResult examine_program(const fs::path& program, const JobDirectory& directory) {
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

CheckResult check_free_space(const fs::path& base, const FreeSpace& room) {
  CheckResult finding{Level::ok, "job directories",
                      base.string() + ": mode 0700, " + std::to_string(room.free_bytes / kMiB) + " MiB free",
                      ""};
  if (room.files && room.free_bytes >= kWanted) return finding;
  finding.level = room.files && room.free_bytes >= kNeeded ? Level::warn : Level::fail;
  if (!room.files) finding.text = base.string() + ": no more files can be made there";
  finding.remedy = std::string("make room: the hub keeps its decisions there; or ") + kOtherBase;
  return finding;
}

CheckResults examine_hub(const EnvironmentLookup& environment, const fs::path& object) {
  CheckResults findings;
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
