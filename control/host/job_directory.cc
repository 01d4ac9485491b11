// SPDX-License-Identifier: Apache-2.0
#include "control/host/job_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "control/config/file_content.h"
#include "control/files/file_access.h"

namespace gradmon {
namespace {

using Problem = tl::unexpected<std::string>;

constexpr std::size_t kLongestName = 40;
constexpr std::size_t kHashDigits = 16;
// A runtime directory of this length, "/gradmon/", a job's name and "/hub.sock" fit into a socket address.
constexpr std::size_t kLongestRuntime = 48;
constexpr mode_t kMode = 0700;
constexpr mode_t kOthersWrite = 0022;

// The reason why the directory is unusable, or "".
std::string objection(const fs::path& path, const struct stat& found) {
  const std::string name = path.string();
  if (S_ISLNK(found.st_mode)) return name + ": is a symbolic link; expected a directory; remove it";
  if (!S_ISDIR(found.st_mode)) return name + ": is not a directory; remove it";
  if (found.st_uid != geteuid()) {
    return name + ": belongs to uid " + std::to_string(found.st_uid) + "; expected uid " +
           std::to_string(geteuid()) + " (the current user)";
  }
  if ((found.st_mode & 0777U) != kMode)
    return name + ": has mode " + mode_text(found.st_mode) + "; expected 0700; run chmod 700";
  return "";
}

enum class Missing { refused, made };

// Opens and checks the last component of `path` in `parent`; Missing::made creates it if it is missing.
Result<Descriptor> open_private(const Descriptor& parent, const fs::path& path, Missing missing) {
  const std::string name = path.filename().string();
  if (missing == Missing::made) {
    if (::mkdirat(parent.get(), name.c_str(), kMode) == 0) {
      // Restores the mode bits that the umask cleared. If this fails, objection() reports the mode.
      [[maybe_unused]] const int changed = ::fchmodat(parent.get(), name.c_str(), kMode, 0);
    } else if (errno != EEXIST) {
      return path_error(path, errno);
    }
  }
  Descriptor directory(::openat(parent.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const int code = errno;
  struct stat found {};
  const int looked = directory.valid() ? ::fstat(directory.get(), &found)
                                       : ::fstatat(parent.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW);
  if (looked != 0) return path_error(path, errno);
  if (std::string why = objection(path, found); !why.empty()) return Problem(std::move(why));
  if (!directory.valid()) return path_error(path, code);
  return directory;
}

Result<Descriptor> open_base(const fs::path& base, Missing missing) {
  const fs::path parent = base.parent_path();
  const Descriptor above(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!above.valid()) return path_error(parent, errno);
  return open_private(above, base, missing);
}

Result<void> open_both(const fs::path& job, Missing missing) {
  const auto base = open_base(job.parent_path(), missing);
  if (!base) return Problem(base.error());
  const auto directory = open_private(*base, job, missing);
  if (!directory) return Problem(directory.error());
  return {};
}

bool usable_runtime(const std::string& directory) {
  struct stat found {};
  return !directory.empty() && directory.front() == '/' && directory.size() <= kLongestRuntime &&
         ::stat(directory.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & kOthersWrite) == 0;
}

bool is_gone(const fs::path& directory) {
  struct stat found {};
  return ::stat(directory.c_str(), &found) != 0 && errno == ENOENT;
}

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-';
}

void find_in(const fs::path& base, FoundJobs& found) {
  struct stat status {};
  if (::lstat(base.c_str(), &status) != 0 && errno == ENOENT) return;
  if (const auto opened = open_base(base, Missing::refused); !opened) {
    found.refused.push_back(opened.error());
    return;
  }
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end; entry.increment(error))
    paths.push_back(entry->path());
  if (error) found.refused.push_back(base.string() + ": " + error.message());
  std::sort(paths.begin(), paths.end());
  for (fs::path& path : paths) {
    JobDirectory job{std::move(path)};
    if (const auto checked = job.check())
      found.directories.push_back(std::move(job));
    else
      found.refused.push_back(checked.error());
  }
}

using Failure = HubLock::Failure;
using Kind = HubLock::Failure::Kind;

constexpr int kAttempts = 3;

tl::unexpected<Failure> cannot(const fs::path& path, const std::string& why) {
  return tl::unexpected(Failure{Kind::error, path.string() + ": " + why});
}

tl::unexpected<Failure> cannot(const fs::path& path, int code) {
  return cannot(path, std::generic_category().message(code));
}

}  // namespace

std::vector<fs::path> JobBases::all() const {
  std::vector<fs::path> found{preferred()};
  if (run_user) found.push_back(*run_user);
  if (xdg_runtime) found.push_back(dev_shm);
  return found;
}

JobBases job_bases(const EnvironmentLookup& environment) {
  JobBases bases;
  const std::string user = std::to_string(geteuid());
  if (const auto runtime = environment("XDG_RUNTIME_DIR"); runtime && usable_runtime(*runtime))
    bases.xdg_runtime = fs::path(*runtime) / "gradmon";
  bases.dev_shm = "/dev/shm/gradmon-" + user;
  const std::string usual = "/run/user/" + user;  // made at a login, by pam_systemd
  if (const fs::path base = fs::path(usual) / "gradmon"; usable_runtime(usual) && base != bases.xdg_runtime)
    bases.run_user = base;
  return bases;
}

Result<void> JobDirectory::check() const { return open_both(path, Missing::refused); }

std::string job_file_name(const std::string& launch_id) {
  const auto leads_well = [](const std::string& name) {
    return !name.empty() && name.front() != '.' && name.front() != '-';
  };
  const bool all_plain = std::all_of(launch_id.begin(), launch_id.end(), plain);
  if (all_plain && launch_id.size() <= kLongestName && leads_well(launch_id)) return launch_id;
  std::string name = launch_id.substr(0, kLongestName - kHashDigits - 1);
  for (char& c : name) c = plain(c) ? c : '_';
  if (!leads_well(name)) name = ("job" + name).substr(0, kLongestName - kHashDigits - 1);
  return name + "-" + sha256_hex(launch_id).substr(0, kHashDigits);
}

Result<JobDirectory> make_job_directory(const std::string& launch_id, const JobBases& bases) {
  JobDirectory job{bases.preferred() / job_file_name(launch_id)};
  auto made = job.ensure();
  if (!made && bases.xdg_runtime && is_gone(bases.xdg_runtime->parent_path())) {
    job.path = bases.dev_shm / job_file_name(launch_id);
    made = job.ensure();
  }
  if (!made) return Problem(made.error());
  return job;
}

Result<void> JobDirectory::ensure() const { return open_both(path, Missing::made); }

FoundJobs find_job_directories(const JobBases& bases) {
  FoundJobs found;
  for (const fs::path& base : bases.all()) find_in(base, found);
  return found;
}

HubLock::HubLock(JobDirectory directory, Descriptor folder, Descriptor file)
    : directory_(std::move(directory)), folder_(std::move(folder)), file_(std::move(file)) {}

tl::expected<HubLock, Failure> HubLock::acquire(const JobDirectory& directory) {
  const fs::path path = directory.lock();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (const auto checked = directory.check(); !checked)
      return tl::unexpected(Failure{Kind::error, checked.error()});
    Descriptor folder(::open(directory.path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder.valid()) return cannot(directory.path, errno);
    Descriptor file(::openat(folder.get(), path.filename().c_str(),
                             O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    if (!file.valid()) return cannot(path, errno);
    struct stat found {};
    if (::fstat(file.get(), &found) != 0) return cannot(path, errno);
    if (!S_ISREG(found.st_mode)) return cannot(path, "is not a regular file; remove it");
    if (found.st_uid != geteuid()) {
      return cannot(path, "belongs to uid " + std::to_string(found.st_uid) + "; expected uid " +
                              std::to_string(geteuid()) + " (the current user)");
    }
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return cannot(path, errno);
      return tl::unexpected(Failure{Kind::taken, path.string() + ": another hub of this job holds the lock"});
    }
    HubLock lock(directory, std::move(folder), std::move(file));
    if (lock.is_at_its_path()) return lock;  // Otherwise the file was removed between open and flock.
  }
  return cannot(path, "removed by another process during each of " + std::to_string(kAttempts) +
                          " attempts to lock it");
}

bool HubLock::is_at_its_path() const {
  return is_at_path(directory_.path, folder_.get()) && is_at_path(directory_.lock(), file_.get());
}

namespace {

using WallClock = std::chrono::system_clock;

struct Found {
  fs::path path;
  WallClock::time_point changed;
};

WallClock::time_point changed_at(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? WallClock::from_time_t(status.st_mtime)
                                             : WallClock::time_point{};
}

// A directory that holds other files is kept.
void remove_job(const fs::path& path) {
  const JobDirectory directory{path};
  const auto lock = HubLock::acquire(directory);
  if (!lock) return;
  for (const fs::path& file : {directory.socket(), directory.alerts(), directory.decisions(),
                               directory.keys(), directory.log(), directory.lock()}) {
    // hub.log.1 is the previous log; a killed hub leaves decisions.new and keys.new.
    for (const char* suffix : {".1", ".new", ""}) ::unlink((file.string() + suffix).c_str());
  }
  ::rmdir(path.c_str());
}

// A job in static mode has alerts only.
constexpr const char* kFilesOfAnEpoch[] = {"history.jsonl", "history.jsonl.1", "alerts.jsonl",
                                           "alerts.jsonl.1"};

void remove_history(const fs::path& epoch) {
  for (const char* file : kFilesOfAnEpoch) ::unlink((epoch / file).c_str());
  ::rmdir(epoch.c_str());
}

template <class Remove>
void remove_old(std::vector<Found> found, const RetentionPolicy& policy, Remove remove) {
  const auto now = WallClock::now();
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.changed > b.changed; });
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto age = now - found[i].changed;
    if (age >= policy.min_age && (age >= policy.max_age || i >= policy.max_count)) remove(found[i].path);
  }
}

}  // namespace

void remove_old_jobs(const JobDirectory& own, const JobBases& bases, const RetentionPolicy& policy) {
  std::vector<Found> found;
  for (const JobDirectory& other : find_job_directories(bases).directories) {
    if (other.path == own.path) continue;
    found.push_back(
        {other.path, std::max({changed_at(other.path), changed_at(other.log()), changed_at(other.lock())})});
  }
  remove_old(std::move(found), policy, remove_job);
}

void remove_old_histories(const fs::path& output_dir, const std::set<std::string>& running,
                          const RetentionPolicy& policy) {
  std::vector<Found> found;
  std::error_code error;
  for (const fs::directory_entry& epoch : fs::directory_iterator(output_dir / ".gradmon", error)) {
    WallClock::time_point changed{};
    for (const char* file : kFilesOfAnEpoch) changed = std::max(changed, changed_at(epoch.path() / file));
    const bool runs = running.count(epoch.path().filename().string()) != 0;
    if (runs || changed == WallClock::time_point{}) continue;
    found.push_back({epoch.path(), changed});
  }
  remove_old(std::move(found), policy, remove_history);
}

}  // namespace gradmon
