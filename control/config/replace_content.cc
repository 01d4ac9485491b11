// SPDX-License-Identifier: Apache-2.0
#include "control/config/replace_content.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sodium.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <system_error>
#include <thread>

#include "control/config/file_attributes.h"
#include "control/files/durable_file.h"
#include "control/log.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 12;
constexpr std::size_t kTimeDigits = 16;

std::string message(int code) { return std::generic_category().message(code); }
tl::unexpected<ExchangeError> unwritable(std::string text) {
  return tl::unexpected(ExchangeError{ExchangeError::Kind::unwritable, std::move(text)});
}
tl::unexpected<ExchangeError> changed() {
  return tl::unexpected(ExchangeError{ExchangeError::Kind::changed, kSavedMeanwhile});
}

tl::unexpected<ExchangeError> stuck(const fs::path& side) {
  return tl::unexpected(
      ExchangeError{ExchangeError::Kind::stuck,
                    "a save made during the edit could not be restored: it is in " + side.string()});
}

// Names beside the target: of a new file until it is complete, and of side files.
std::string new_prefix(const fs::path& target) { return "." + target.filename().string() + ".gradmon-new-"; }
std::string side_prefix(const fs::path& target) {
  return "." + target.filename().string() + ".gradmon-prev-";
}

std::string random_suffix() {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", randombytes_random());
  return digits;
}

// The parts of a side file's name. They identify the two contents, base and new, that the file may hold
// without being a save of the user's, so that a later process can tell.
struct SideName {
  std::string base_hash;  // of the save that the edit was based on
  std::string base_time;  // of that save: the user may have saved the same content again
  std::string new_hash;

  bool may_hold(const FileIdentity& found) const {
    const auto hash = found.sha256.substr(0, kHashDigits);
    return hash == new_hash || (hash == base_hash && time_of(found) == base_time);
  }
  static std::string time_of(const FileIdentity& save) {
    char digits[kTimeDigits + 1];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(save.mtime_ns));
    return digits;
  }
};

fs::path side_path(const fs::path& target, const FileIdentity& base, std::string_view new_hash) {
  return target.parent_path() / (side_prefix(target) + base.sha256.substr(0, kHashDigits) + "-" +
                                 std::string(new_hash.substr(0, kHashDigits)) + "-" +
                                 SideName::time_of(base) + "-" + random_suffix());
}

std::optional<SideName> parse_side_name(const std::string& name, const std::string& prefix) {
  if (name.rfind(prefix, 0) != 0 || name.size() < prefix.size() + 2 * kHashDigits + kTimeDigits + 2)
    return std::nullopt;
  const auto rest = name.substr(prefix.size());
  return SideName{rest.substr(0, kHashDigits), rest.substr(2 * kHashDigits + 2, kTimeDigits),
                  rest.substr(kHashDigits + 1, kHashDigits)};
}

bool exchange_paths(const fs::path& a, const fs::path& b) {
  return ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

// Sets a time stamp from the clock that the file system uses, different from `other_than_ns`.
bool set_time_stamp(int fd, std::int64_t other_than_ns) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  if (now.tv_sec * 1'000'000'000L + now.tv_nsec == other_than_ns) {
    now.tv_nsec = now.tv_nsec > 0 ? now.tv_nsec - 1 : 1;
  }
  const timespec times[2] = {now, now};
  return ::futimens(fd, times) == 0;
}

// Returns "" or the error.
std::string write_new_file(int fd, const fs::path& target, const FileRead& base, std::string_view text) {
  if (!write_all(fd, text)) return "it cannot be written: " + message(errno);
  if (auto lost = copy_attributes(target, fd); !lost.empty()) return lost;
  if (!set_time_stamp(fd, base.signature.mtime_ns)) return "its time stamp cannot be set: " + message(errno);
  if (::fsync(fd) != 0) return "it cannot be written: " + message(errno);
  return "";
}

// None if the file still is `base`.
std::optional<ExchangeError> check_unchanged(const fs::path& file, const FileRead& base) {
  const auto now = read_file(file);
  std::error_code error;
  if (!now && fs::exists(file, error)) return ExchangeError{ExchangeError::Kind::unwritable, now.error()};
  if (!now) return changed().value();
  if (now->signature.same_save(base.signature) && now->content.identity == base.content.identity)
    return std::nullopt;
  return changed().value();
}

struct Restoration {
  bool done = false;                  // the newest save is at the target
  std::optional<FileSignature> side;  // of the file that is at `side` now; none: no file, or an error
};

// Exchanges `side`, a save that must be at `target`, with `target`. If the file that comes out is not
// `last_put`, it is a newer save and is exchanged back in turn.
Restoration restore(const fs::path& side, const fs::path& target, FileSignature last_put) {
  constexpr int kMaxTurns = 100;
  for (int i = 0; i < kMaxTurns; ++i) {
    const auto putting = sign_file(side);
    if (!putting) break;
    if (!exchange_paths(side, target)) {
      // The target was removed meanwhile, by the user or by an editor that removes it before it saves.
      if (errno != ENOENT || ::link(side.c_str(), target.c_str()) != 0) break;
      ::unlink(side.c_str());
      return {true, std::nullopt};
    }
    const auto out = sign_file(side);
    if (!out) return {true, std::nullopt};
    if (out->same_save(last_put)) return {true, last_put};
    last_put = *putting;
  }
  return {};
}

// Whether a killed process has left a save of the user's at `side`: the target has the content of the
// edit, or is an older save that was exchanged with `side` at the same time.
bool holds_lost_save(const FileRead& side, const FileRead& target, const SideName& name) {
  constexpr std::int64_t kSameTime = 50'000'000;  // ns between the ctimes of one exchange, at most
  if (target.content.identity.sha256.substr(0, kHashDigits) == name.new_hash) return true;
  const auto apart = target.signature.ctime_ns - side.signature.ctime_ns;
  return std::abs(apart) < kSameTime && side.signature.mtime_ns > target.signature.mtime_ns;
}

tl::expected<void, ExchangeError> put_in_place(const fs::path& target, const fs::path& side,
                                               const FileRead& base, const FileSignature& ours,
                                               std::vector<DisplacedFile>& displaced, Replacement how) {
  constexpr std::chrono::milliseconds kSettle{2};
  if (auto difference = check_unchanged(target, base)) {
    ::unlink(side.c_str());
    return tl::unexpected(std::move(*difference));
  }
  if (how == Replacement::exchange) {
    if (exchange_paths(side, target)) {
      std::this_thread::sleep_for(kSettle);
      auto difference = check_unchanged(side, base);
      if (!difference) {
        displaced.push_back({target, side, base.signature});
        return {};
      }
      const auto restored = restore(side, target, ours);
      if (restored.side) displaced.push_back({target, side, *restored.side});
      if (!restored.done) return stuck(side);
      return tl::unexpected(std::move(*difference));
    }
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
      const int code = errno;
      ::unlink(side.c_str());
      if (code == ENOENT) return changed();
      return unwritable("it cannot be replaced: " + message(code));
    }
  }
  if (::rename(side.c_str(), target.c_str()) != 0) {
    const int code = errno;
    ::unlink(side.c_str());
    return unwritable("it cannot be replaced: " + message(code));
  }
  return {};
}

}  // namespace

tl::expected<FileRead, ExchangeError> replace_content(const fs::path& target, const FileRead& base,
                                                      std::string_view text,
                                                      std::vector<DisplacedFile>& displaced,
                                                      Replacement how) {
  if (auto obstacle = why_unwritable(target); !obstacle.empty()) return unwritable(std::move(obstacle));
  const auto hash = sha256_of(text);
  const auto fresh = target.parent_path() / (new_prefix(target) + random_suffix());
  const auto side = side_path(target, base.content.identity, hash);
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return unwritable("cannot create a file in its directory: " + message(errno));
  auto problem = write_new_file(fd, target, base, text);
  ::close(fd);
  const auto signature = sign_file(fresh);
  if (problem.empty() && !signature) problem = signature.error();
  if (problem.empty() && ::rename(fresh.c_str(), side.c_str()) != 0)
    problem = "it cannot be replaced: " + message(errno);
  if (!problem.empty()) {
    ::unlink(fresh.c_str());
    return unwritable(std::move(problem));
  }
  FileRead out{{std::string(text), {signature->mtime_ns, text.size(), hash}}, *signature};
  const auto done = put_in_place(target, side, base, out.signature, displaced, how);
  sync_directory(target.parent_path());
  if (!done) return tl::unexpected(done.error());
  return out;
}

Restored restore_if_written(const DisplacedFile& file, const FileSignature& ours,
                            std::vector<DisplacedFile>& displaced) {
  const auto side = sign_file(file.side);
  if (!side || side->same_save(file.signature)) return Restored::no;
  const auto target = sign_file(file.target);
  const bool target_is_ours = target && target->same_save(ours);
  if (target && !target_is_ours && target->mtime_ns >= side->mtime_ns) return Restored::no;
  const auto restored = restore(file.side, file.target, target.value_or(FileSignature{}));
  if (restored.side) displaced.push_back({file.target, file.side, *restored.side});
  if (!restored.done) {
    log_warn(stuck(file.side).value().text);
    return Restored::failed;
  }
  log_info("the config file was saved during an edit by gradmon: the save was restored");
  return Restored::yes;
}

void discard(const DisplacedFile& file) { ::unlink(file.side.c_str()); }

bool is_open_elsewhere(const DisplacedFile& file) {
  const int fd = ::open(file.side.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno != ENOENT;
  // Only a granted write lease proves that nobody else has the file open. If somebody opens the file
  // now, the lease sends a signal: SIGIO would end this process.
  const bool granted = ::fcntl(fd, F_SETSIG, SIGURG) == 0 && ::fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
  ::close(fd);
  return !granted;
}

LeftOvers recover_side_files(const fs::path& target, std::chrono::seconds age) {
  auto left_overs = LeftOvers::none;
  const auto new_files = new_prefix(target);
  const auto side_files = side_prefix(target);
  std::error_code error;
  for (fs::directory_iterator i(target.parent_path(), error), end; !error && i != end; i.increment(error)) {
    const auto file_name = i->path().filename().string();
    const auto name = parse_side_name(file_name, side_files);
    if (!name && file_name.rfind(new_files, 0) != 0) continue;
    const auto left = read_file(i->path());
    if (!left) continue;
    const auto changed_at = std::chrono::nanoseconds(left->signature.ctime_ns);
    const auto unchanged_for = std::chrono::system_clock::now().time_since_epoch() - changed_at;
    if (unchanged_for < age) {
      left_overs = LeftOvers::some;
      continue;
    }
    const auto now = read_file(target);
    const bool is_save = name && !name->may_hold(left->content.identity);
    const bool must_restore = is_save && now && holds_lost_save(*left, *now, *name);
    if (must_restore && restore(i->path(), target, now->signature).done) {
      log_warn("restored a config save that an earlier run had moved aside");
    } else if (must_restore || (is_save && !now)) {
      left_overs = LeftOvers::some;
      continue;
    }
    if (unchanged_for < kMaxDisplacedTime + age && is_open_elsewhere({target, i->path(), left->signature})) {
      left_overs = LeftOvers::some;
      continue;
    }
    ::unlink(i->path().c_str());
  }
  return left_overs;
}

}  // namespace gradmon
