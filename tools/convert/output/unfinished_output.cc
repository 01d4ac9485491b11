// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/output/unfinished_output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "control/files/make_directories.h"
#include "tools/convert/output/curve_directories.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".unfinished-";
constexpr std::size_t kRandomBytes = 6;  // filled in by mkdtemp()
constexpr const char* kLock = "lock";
constexpr int kAttempts = 10;
constexpr std::chrono::minutes kLongestStart{1};  // from mkdtemp() to the lock

std::string cause() { return std::system_category().message(errno); }

// True if the name is ".NAME.unfinished-XXXXXX".
bool is_place(const std::string& name) {
  const std::size_t tail = kMark.size() + kRandomBytes;
  return name.size() > tail && name.front() == '.' &&
         name.compare(name.size() - tail, kMark.size(), kMark) == 0;
}

// Removes the directories of killed processes: they are unlocked. A directory without a lock file is empty:
// its process is just making it, or was killed then.
void remove_abandoned(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_place(entry->path().filename().string())) continue;
    std::error_code ignored;
    const Descriptor lock(::open((entry->path() / kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    const bool none = !lock.valid() && errno == ENOENT;
    if (lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry->path(), ignored);
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(entry->path(), ignored);
    if (none && !ignored && age > kLongestStart) ::rmdir(entry->path().c_str());
  }
}

// The lock of a new directory; nullopt if another process has taken the directory for an abandoned one.
std::optional<Descriptor> lock_in(const fs::path& place) {
  const fs::path file = place / kLock;
  Descriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
  if (!lock.valid() && errno == ENOENT) return std::nullopt;
  if (!lock.valid()) return Descriptor();
  // Without locks on this file system, an abandoned directory stays.
  static_cast<void>(::flock(lock.get(), LOCK_EX));
  if (!is_at_path(file, lock.get())) return std::nullopt;
  return lock;
}

// Returns nullopt for anything that no conversion makes.
std::optional<UnfinishedOutput::Earlier> earlier_at(const fs::path& target) {
  using Earlier = UnfinishedOutput::Earlier;
  std::error_code error;
  switch (fs::symlink_status(target, error).type()) {
    case fs::file_type::not_found:
      return Earlier::nothing;
    case fs::file_type::regular:
      return Earlier::file;
    default:
      break;
  }
  if (!fs::is_directory(target, error)) return std::nullopt;
  return fs::is_empty(target, error) ? Earlier::nothing : Earlier::curves;
}

const char* expected_at_target(UnfinishedOutput::Earlier earlier) {
  switch (earlier) {
    case UnfinishedOutput::Earlier::file:
      return "a new name, an empty directory or a file";
    case UnfinishedOutput::Earlier::curves:
      return "a new name or a directory";
    default:
      return "a new name or an empty directory";
  }
}

tl::unexpected<std::string> cannot_rename(const fs::path& from, const fs::path& to) {
  return tl::unexpected("cannot give " + from.string() + " the name " + to.string() + ": " + cause());
}

}  // namespace

tl::expected<UnfinishedOutput, std::string> UnfinishedOutput::begin(const fs::path& target, Earlier earlier) {
  std::error_code error;
  fs::path full = fs::absolute(target, error).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  const auto there = earlier_at(full);
  if (there != Earlier::nothing && there != earlier)
    return tl::unexpected(full.string() + " is there already; expected " + expected_at_target(earlier));
  if (auto made = make_directories(full.parent_path()); !made) return tl::unexpected(made.error());
  remove_abandoned(full.parent_path());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string place =
        (full.parent_path() / ("." + full.filename().string() + std::string(kMark) + "XXXXXX")).string();
    if (::mkdtemp(place.data()) == nullptr)
      return tl::unexpected("cannot make a directory in " + full.parent_path().string() + ": " + cause());
    auto lock = lock_in(place);
    if (!lock) continue;
    if (!lock->valid()) {
      const std::string why = cause();
      ::rmdir(place.c_str());
      return tl::unexpected("cannot make a file in " + place + ": " + why);
    }
    return UnfinishedOutput(std::move(full), *there, place, std::move(*lock));
  }
  return tl::unexpected("cannot lock a directory in " + full.parent_path().string() +
                        ": another process keeps removing it");
}

tl::expected<std::size_t, std::string> UnfinishedOutput::finish() {
  if (earlier_ == Earlier::curves) return move_curve_directories(path(), target_);
  if (earlier_ == Earlier::file) {
    if (::rename(path().c_str(), target_.c_str()) == 0) return 1;
    return cannot_rename(path(), target_);
  }
  int failed = ::renameat2(AT_FDCWD, path().c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
  const int error = failed != 0 ? errno : 0;
  // An empty directory may be replaced; and some file systems support only the plain rename().
  struct stat seen {};
  const bool empty_directory = error == EEXIST && ::rmdir(target_.c_str()) == 0;
  const bool plain = error == EINVAL && ::lstat(target_.c_str(), &seen) != 0;
  if (!empty_directory && !plain) {
    errno = error;
  } else {
    failed = ::rename(path().c_str(), target_.c_str());
  }
  if (failed == 0) return 0;
  return cannot_rename(path(), target_);
}

void UnfinishedOutput::remove() {
  if (!lock_.valid()) return;
  std::error_code ignored;
  fs::remove_all(place_, ignored);
}

}  // namespace gradmon
