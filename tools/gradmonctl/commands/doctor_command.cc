// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "control/config/config_file.h"
#include "control/config/config_parser.h"
#include "control/files/descriptor.h"
#include "control/host/child_process.h"
#include "control/host/job_directory.h"
#include "control/host/unix_stream.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/curve_keys.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/commands.h"
#include "tools/gradmonctl/commands/config_text.h"
#include "tools/gradmonctl/commands/doctor.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

using Level = CheckResult::Level;
using std::chrono::milliseconds;

constexpr int kEventWaitMs = 1000;
constexpr std::int64_t kSpareDescriptors = 16;  // for the connection to the hub and the output files
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kNeeded = kMiB;      // a decision log and the start of the hub's log
constexpr std::uint64_t kWanted = 8 * kMiB;  // both logs at full size, for several jobs
constexpr milliseconds kHubTime{10'000};     // to start and answer, and to end
constexpr const char* kOtherBase =
    "set XDG_RUNTIME_DIR to a directory of yours with mode 0700 and a short path";
constexpr const char* kOtherOutput = "choose another one with MONITOR_OUTPUT_DIR";

std::string_view name_of(Level level) {
  return level == Level::ok ? "ok" : level == Level::warn ? "warn" : "fail";
}

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
  return {Level::ok, "config watch", "a save is seen at once"};
}

CheckResult examine_exchange(bool works) {
  if (works) return {Level::ok, "config write-back", "files can be exchanged: no save is lost"};
  return {Level::warn, "config write-back",
          "files cannot be exchanged: a save during a write-back can be lost",
          "\"write_back\": false leaves the file alone; or put it on a file system with RENAME_EXCHANGE"};
}

// Users who can write to the directory can remove or replace the job's output.
CheckResult examine_output_mode(const fs::path& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return {Level::warn, "output mode", std::strerror(errno)};
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "0%o", static_cast<unsigned>(status.st_mode & 07777U));
  if ((status.st_mode & S_IWOTH) != 0)
    return {Level::warn, "output mode",
            std::string(mode.data()) + ": everybody can write there, and remove or replace the job's output",
            "chmod o-w " + directory.string()};
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return {Level::warn, "output mode", std::string(mode.data()) + ": it is another user's",
            "choose one of your own with MONITOR_OUTPUT_DIR"};
  return {Level::ok, "output mode", mode.data()};
}

// The finding about a directory that cannot be examined.
CheckResult unreachable(const char* check, const fs::path& directory, const std::error_code& error,
                        const char* remedy, const char* remedy_if_denied) {
  std::string denial = access_denial(directory, Access::read);
  if (!denial.empty()) return {Level::fail, check, std::move(denial), remedy_if_denied};
  return {Level::fail, check, directory.string() + ": " + error.message(), remedy};
}

CheckResult examine_base(const fs::path& base) {
  struct statvfs status {};
  if (statvfs(base.c_str(), &status) != 0)
    return {Level::fail, "job directories", base.string() + ": " + std::strerror(errno), kOtherBase};
  return check_free_space(
      base, {std::uint64_t{status.f_bavail} * status.f_frsize, status.f_files == 0 || status.f_favail > 0});
}

// Kills the hub that listens at the socket, and waits for its end: it may not write into a directory that is
// being removed. A hub that does not listen ends by itself when its directory is gone.
void end_hub(const fs::path& socket) {
  const auto connected = connect_unix(socket);
  if (!connected) return;
  const Descriptor connection(*connected);
  ucred hub{};
  socklen_t size = sizeof hub;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &hub, &size) == 0 && hub.pid > 1)
    kill(hub.pid, SIGKILL);
  pollfd closed{connection.get(), POLLIN, 0};  // The stream closes when the process ends.
  poll(&closed, 1, static_cast<int>(kHubTime.count()));
}

CheckResult examine_program(const fs::path& program, const JobDirectory& directory) {
  const std::string launch_id = directory.path.filename().string();
  std::string problem;
  if (const auto started = start_hub({program, directory, {launch_id}, hub_environment()}); started) {
    CommandClient client(ipc_endpoint(directory.socket()));
    const auto reply = client.ask(make_command(CommandVerb::status), kHubTime);
    if (!reply) problem = reply.error();
    end_hub(directory.socket());
  } else {
    problem = started.error();
  }
  if (problem.empty()) return {Level::ok, "hub", program.string() + " starts and answers"};
  return {Level::fail, "hub", program.string() + " does not start: " + problem,
          "run it by hand to see what it misses; without a hub nothing can be switched on"};
}

CheckResult examine_hooks(const Status& status) {
  if (status.torch.empty())
    return {Level::warn, "torch", "the job did not report its torch version",
            "rebuild the job with this gradmon"};
  std::string kinds;
  for (const std::string& hook : status.hooks) kinds += (kinds.empty() ? "" : ", ") + hook;
  return {Level::ok, "torch", status.torch + "; hooks: " + (kinds.empty() ? "none" : kinds)};
}

void examine_job(const Status& status, CheckResults& findings) {
  findings.push_back({Level::ok, "job", status_line(status)});
  findings.push_back(examine_hooks(status));
  if (status.last_error)
    findings.push_back({Level::warn, "last error", status.last_error->text, "gradmonctl status tells when"});
  if (status.ranks.empty() || status.ranks.front().host != host_name()) return;
  const RankStatus& rank = status.ranks.front();
  if (const auto use = descriptor_use(rank.pid))
    findings.push_back(examine_descriptors("rank " + std::to_string(rank.rank.value), *use));
}

}  // namespace

Level worst(const CheckResults& findings) {
  Level level = Level::ok;
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
  if (parsed->warnings.empty()) return {Level::ok, "config", file + ": valid"};
  std::string warnings;
  for (const ConfigWarning& warning : parsed->warnings)
    warnings += (warnings.empty() ? "" : "\n") + to_string(warning);
  return {Level::warn, "config", warnings, "the file is valid all the same"};
}

tl::expected<std::string, std::error_code> file_system_type(const fs::path& path) {
  std::error_code error;
  const std::string whole = fs::canonical(path, error).string() + "/";
  if (error) return tl::unexpected(error);
  std::string found;
  std::size_t longest = 0;
  std::ifstream mounts("/proc/self/mounts");
  for (std::string device, place, type, rest;
       mounts >> device >> place >> type && std::getline(mounts, rest);) {
    if (place.back() != '/') place += '/';
    if (whole.rfind(place, 0) != 0 || place.size() < longest) continue;
    longest = place.size();
    found = type;
  }
  return found;
}

bool is_network_file_system(const std::string& type) {
  static const std::set<std::string> types{"nfs",  "nfs4", "smb3",   "smbfs", "cifs",  "9p",
                                           "ceph", "afs",  "lustre", "gpfs",  "beegfs"};
  return types.count(type) != 0 || type.rfind("fuse", 0) == 0;
}

Result<DirectoryCapabilities> probe_directory(const fs::path& directory) {
  std::string name = (directory / ".gradmon-doctor-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    return tl::unexpected("no file can be made in " + directory.string() + ": " + std::strerror(errno));
  const fs::path one = fs::path(name) / "one";
  const fs::path other = fs::path(name) / "other";
  DirectoryCapabilities found;
  FileWatch watch(other);
  pollfd readable{watch.fd(), POLLIN, 0};
  std::ofstream(one).close();
  if (rename(one.c_str(), other.c_str()) == 0 && watch.fd() >= 0)
    found.watch = poll(&readable, 1, kEventWaitMs) == 1 && !watch.read_events().empty();
  std::ofstream(one).close();
  found.exchange = renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
  std::error_code error;
  fs::remove_all(name, error);
  return found;
}

CheckResults examine_config_directory(const fs::path& directory) {
  const auto type = file_system_type(directory);
  if (!type)
    return {unreachable("config directory", directory, type.error(),
                        "make it, or name the config file with --config", "")};
  CheckResults findings{{Level::ok, "config directory", directory.string() + " on " + *type}};
  const auto trial = probe_directory(directory);
  if (!trial) {
    findings.push_back({Level::warn, "config write-back", trial.error(),
                        "gradmon cannot update the file; see gradmonctl status instead"});
    return findings;
  }
  findings.push_back(examine_watch(trial->watch, is_network_file_system(*type)));
  findings.push_back(examine_exchange(trial->exchange));
  return findings;
}

CheckResults examine_output_directory(const fs::path& directory) {
  const auto type = file_system_type(directory);
  if (!type && type.error() == std::errc::no_such_file_or_directory)
    return {{Level::ok, "output directory", directory.string() + " does not exist yet; the job creates it"}};
  if (!type) return {unreachable("output directory", directory, type.error(), kOtherOutput, kOtherOutput)};
  CheckResults findings{{Level::ok, "output directory", directory.string() + " on " + *type},
                        examine_output_mode(directory)};
  if (const auto trial = probe_directory(directory); !trial)
    findings.push_back({Level::fail, "output files", trial.error(), kOtherOutput});
  return findings;
}

CheckResult examine_keys(const fs::path& directory) {
  if (const auto client = read_operator_keys(directory); !client)
    return {Level::fail, "keys", client.error()};
  std::error_code error;
  if (!fs::exists(directory / "server.secret", error))
    return {Level::ok, "keys", directory.string() + ": client keys are valid"};
  if (const auto server = read_server_keys(directory); !server) return {Level::fail, "keys", server.error()};
  return {Level::ok, "keys", directory.string() + ": server and client keys are valid"};
}

CheckResult examine_inotify() {
  const Descriptor instance(inotify_init1(IN_CLOEXEC));
  if (instance.valid() && inotify_add_watch(instance.get(), "/", IN_CREATE) >= 0)
    return {Level::ok, "inotify", "an instance and a watch can be made"};
  return {
      Level::warn, "inotify",
      std::string(instance.valid() ? "no watch" : "no instance") + " can be made: " + std::strerror(errno),
      "the file is polled once a second instead; root can raise fs.inotify.max_user_instances and "
      "fs.inotify.max_user_watches with sysctl"};
}

std::optional<DescriptorUse> descriptor_use(std::int64_t pid) {
  const fs::path process = fs::path("/proc") / std::to_string(pid);
  DescriptorUse use;
  std::ifstream limits(process / "limits");
  for (std::string line; std::getline(limits, line);) {
    constexpr std::string_view name = "Max open files";
    if (line.rfind(name, 0) == 0) std::istringstream(line.substr(name.size())) >> use.soft >> use.hard;
  }
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error))
    use.open += 1;
  return error || use.soft == 0 ? std::nullopt : std::optional<DescriptorUse>(use);
}

CheckResult examine_descriptors(const std::string& whose, const DescriptorUse& use) {
  CheckResult finding{Level::ok, "descriptors of " + whose,
                      std::to_string(use.open) + " of " + std::to_string(use.soft) +
                          " are open (hard limit " + std::to_string(use.hard) + ")"};
  if (use.soft - use.open >= kSpareDescriptors) return finding;
  finding.level = Level::warn;
  finding.remedy =
      "with fewer than " + std::to_string(kSpareDescriptors) +
      " free descriptors gradmon may not reach its hub and then stays off; raise the limit with ulimit -n";
  return finding;
}

CheckResult check_free_space(const fs::path& base, const FreeSpace& room) {
  CheckResult finding{Level::ok, "job directories",
                      base.string() + ": mode 0700, " + std::to_string(room.free_bytes / kMiB) + " MiB free"};
  if (room.files && room.free_bytes >= kWanted) return finding;
  finding.level = room.files && room.free_bytes >= kNeeded ? Level::warn : Level::fail;
  if (!room.files) finding.text = base.string() + ": no more files can be made there";
  finding.remedy = std::string("make room: the hub keeps its decisions there; or ") + kOtherBase;
  return finding;
}

CheckResults examine_hub(const EnvironmentLookup& environment, const fs::path& object) {
  const JobBases bases = job_bases(environment);
  const auto made = make_job_directory("doctor-" + random_hex(8), bases);
  CheckResults findings{made ? examine_base(bases.preferred())
                             : CheckResult{Level::fail, "job directories", made.error(), kOtherBase}};
  const auto program = find_hub_program(environment, object);
  if (!program) {
    findings.push_back({Level::fail, "hub", program.error(),
                        "install gradmon-hub beside gradmon's library, or set GRADMON_HUB to its path"});
  } else if (made) {
    findings.push_back(examine_program(*program, *made));
  } else {
    findings.push_back(
        {Level::warn, "hub", program->string() + " is there, but has no directory to start in"});
  }
  std::error_code error;
  if (made) fs::remove_all(made->path, error);
  return findings;
}

int doctor_command(const DoctorRequest& request, const AskJob& ask, const Console& console) {
  CheckResults findings;
  std::string file = request.file;
  std::string output = output_directory(request.selector);
  const auto reply = ask(make_command(CommandVerb::status), kAnswerTime);
  if (reply && reply->status) {
    examine_job(*reply->status, findings);
    if (file.empty()) file = reply->status->config_path;
    if (request.selector.output_dir.empty() && !reply->status->output_dir.empty())
      output = reply->status->output_dir;
  } else {
    findings.push_back({Level::warn, "job", reply ? reply->message : reply.error(),
                        "only this host was checked; start a job to check its status too"});
  }
  const auto take = [&findings](CheckResults more) {
    std::move(more.begin(), more.end(), std::back_inserter(findings));
  };
  if (file.empty()) file = "./monitor_config.json";
  const auto named = request.file.empty() ? ConfigNamed::by_job_or_default : ConfigNamed::by_option;
  const fs::path directory = fs::path(file).parent_path();
  findings.push_back(examine_config_file(file, named));
  take(examine_config_directory(directory.empty() ? "." : directory));
  take(examine_output_directory(output));
  take(examine_hub());
  const auto endpoint = find_endpoint(request.selector);
  if (const std::string keys = key_directory(request.selector, endpoint.value_or("")); !keys.empty())
    findings.push_back(examine_keys(keys));
  findings.push_back(examine_inotify());
  if (const auto use = descriptor_use(getpid())) findings.push_back(examine_descriptors("gradmonctl", *use));
  console.out << (request.json ? findings_json(findings) : findings_text(findings));
  return worst(findings) == Level::fail ? kExitFailed : kExitDone;
}

namespace {}  // namespace

Subcommand doctor_subcommand() {
  const auto request = std::make_shared<DoctorRequest>();
  return {
      request, "doctor [RUN] [--json]",
      "Check this host for what gradmon needs, and show what the job supports",
      with_job_options({{"--json", &request->json, "one JSON object"},
                        {"--config", &request->file,
                         "the config file\n(default: the live job's, else ./monitor_config.json)", "FILE"}},
                       request->selector),
      [request](const Console& console) {
        std::string taken;
        const auto ask = connect(request->selector, console, &taken);
        report_taken(taken, console);
        return doctor_command(*request, ask ? *ask : failing_ask(ask.error()), console);
      }};
}

}  // namespace gradmon
