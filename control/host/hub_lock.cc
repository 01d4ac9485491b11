// SPDX-License-Identifier: Apache-2.0
#include "control/host/hub_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace gradmon {
namespace {

namespace fs = std::filesystem;
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

}  // namespace gradmon
