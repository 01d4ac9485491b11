// SPDX-License-Identifier: Apache-2.0
#include "control/config/replace_content.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <system_error>
#include <thread>

#include "control/config/json_text.h"
#include "control/files/descriptor.h"
#include "control/files/file_access.h"
#include "control/log.h"

namespace gradmon {
namespace {

constexpr std::size_t kHashDigits = 12;
constexpr std::size_t kTimeDigits = 16;

std::string message(int code) { return std::generic_category().message(code); }
tl::unexpected<EditError> unwritable(std::string text) {
  return tl::unexpected(EditError{EditError::Kind::unwritable, std::move(text)});
}
tl::unexpected<EditError> changed() {
  return tl::unexpected(EditError{EditError::Kind::changed, kSavedMeanwhile});
}

tl::unexpected<EditError> stuck(const fs::path& side) {
  return tl::unexpected(
      EditError{EditError::Kind::stuck,
                "a save made during the edit could not be restored: it is in " + side.string()});
}

// Names beside the target: of a new file until it is complete, of side files, and of writes in place.
std::string new_prefix(const fs::path& target) { return "." + target.filename().string() + ".gradmon-new-"; }
std::string side_prefix(const fs::path& target) {
  return "." + target.filename().string() + ".gradmon-prev-";
}
// Contains the target's path, because another target of this name may have the same spare directory.
std::string write_prefix(const fs::path& target) {
  return "." + target.filename().string() + ".gradmon-write-" +
         sha256_hex(target.string()).substr(0, kHashDigits) + "-";
}

std::string random_suffix() {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", randombytes_random());
  return digits;
}

// The parts of a side file's name. They identify the two contents, base and new, that the file may hold
// without being a user's save, so that a later process can distinguish them.
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

// Reads an attribute list or value of unknown length; get(nullptr, 0) returns the length. Returns false on an
// error, with errno set.
template <typename Get>
bool fetch(std::string& out, Get get) {
  for (int i = 0; i < 4; ++i) {
    const auto length = get(nullptr, 0);
    if (length < 0) return false;
    out.resize(static_cast<std::size_t>(length));
    if (length == 0) return true;
    const auto got = get(out.data(), out.size());
    if (got < 0 && errno == ERANGE) continue;
    if (got < 0) return false;
    out.resize(static_cast<std::size_t>(got));
    return true;
  }
  return false;
}

std::string copy_extended(const char* source, int fd) {
  std::string names;
  if (!fetch(names, [&](char* to, std::size_t size) { return ::listxattr(source, to, size); })) {
    return errno == ENOTSUP || errno == ENOSYS ? "" : "its attributes cannot be read";
  }
  for (std::size_t at = 0; at < names.size();) {
    const std::string name = names.c_str() + at;
    at += name.size() + 1;
    std::string wanted;
    std::string present;
    if (!fetch(wanted,
               [&](char* to, std::size_t size) { return ::getxattr(source, name.c_str(), to, size); })) {
      return "its attribute " + name + " cannot be read";
    }
    const bool there =
        fetch(present, [&](char* to, std::size_t size) { return ::fgetxattr(fd, name.c_str(), to, size); });
    if (there && present == wanted) continue;
    if (::fsetxattr(fd, name.c_str(), wanted.data(), wanted.size(), 0) != 0) {
      return "its attribute " + name + " cannot be preserved";
    }
  }
  return "";
}

// Copies owner, mode, ACL and extended attributes of `source` to the open file `fd`. Returns "" or the
// attribute that cannot be kept, for people.
std::string copy_attributes(const fs::path& source, int fd) {
  struct stat from {};
  struct stat to {};
  if (::stat(source.c_str(), &from) != 0 || ::fstat(fd, &to) != 0) return "its attributes cannot be read";
  const bool same_owner = from.st_uid == to.st_uid && from.st_gid == to.st_gid;
  if (!same_owner && ::fchown(fd, from.st_uid, from.st_gid) != 0) return "its owner cannot be preserved";
  if (::fchmod(fd, from.st_mode & 07777U) != 0) return "its mode cannot be preserved";
  return copy_extended(source.c_str(), fd);
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
std::optional<EditError> check_unchanged(const fs::path& file, const FileRead& base) {
  const auto now = read_file(file);
  std::error_code error;
  if (!now && fs::exists(file, error)) return EditError{EditError::Kind::unwritable, now.error()};
  if (!now) return changed().value();
  if (now->signature.same_save(base.signature) && now->content.identity == base.content.identity)
    return std::nullopt;
  return changed().value();
}

struct Restoration {
  bool done = false;                  // the newest save is at the target
  std::optional<FileSignature> side;  // of the file that is at `side` now; none: no file, or an error
};

// Exchanges `side`, a save that must be at `target`, with `target`. If the displaced file is not `last_put`,
// it is a newer save and is exchanged back in turn.
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

tl::expected<void, EditError> put_in_place(const fs::path& target, const fs::path& side, const FileRead& base,
                                           const FileSignature& ours, std::vector<DisplacedFile>& displaced,
                                           Replacement how) {
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

// Granted only if the file is open nowhere else. Until the descriptor is closed, others wait in open().
bool take_write_lease(int fd) {
  // The signal for another open() of the file must not be SIGIO, which would end this process.
  return ::fcntl(fd, F_SETSIG, SIGURG) == 0 && ::fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

// A write in place, as stored in its side file: the size of the old content, a newline, both contents.
struct PlannedWrite {
  std::string before;
  std::string after;

  static std::optional<PlannedWrite> parse(std::string_view text) {
    const auto line = std::min(text.find('\n'), text.size());
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + line, size);
    if (error != std::errc{} || end != text.data() + line || size >= text.size() - line) return std::nullopt;
    return PlannedWrite{std::string(text.substr(line + 1, size)), std::string(text.substr(line + 1 + size))};
  }

  // True if an interrupted write left this content: bytes of `after`, then the rest of `before`.
  bool is_incomplete(std::string_view text) const {
    if (text == before || text == after || text.size() < before.size()) return false;
    const auto written = std::mismatch(text.begin(), text.end(), after.begin(), after.end()).first;
    if (text.size() > before.size()) return written == text.end();
    const auto unwritten = std::mismatch(text.rbegin(), text.rend(), before.rbegin(), before.rend()).first;
    return unwritten.base() <= written;
  }

  // Writes the bytes that differ, in one call if possible, then cuts. On false, errno has the cause.
  bool perform(int fd) const {
    const auto first = static_cast<std::size_t>(
        std::mismatch(before.begin(), before.end(), after.begin(), after.end()).first - before.begin());
    auto end = after.size();
    while (before.size() == after.size() && end > first && before[end - 1] == after[end - 1]) --end;
    return ::lseek(fd, static_cast<off_t>(first), SEEK_SET) >= 0 &&
           write_all(fd, std::string_view(after).substr(first, end - first)) &&
           (after.size() >= before.size() || ::ftruncate(fd, static_cast<off_t>(after.size())) == 0);
  }
};

// Stays until the write is done. Locked while this process lives.
struct WriteRecord {
  fs::path path;
  Descriptor lock;
};

Result<WriteRecord> record_write(const fs::path& target, const fs::path& spare, const PlannedWrite& planned) {
  const auto text = std::to_string(planned.before.size()) + "\n" + planned.before + planned.after;
  std::string problem;
  for (const auto& directory : {target.parent_path(), spare}) {
    if (directory.empty() || (directory == spare && !make_directories(spare))) continue;
    WriteRecord record{directory / (write_prefix(target) + random_suffix()), {}};
    record.lock.reset(::open(record.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    const int fd = record.lock.get();
    if (fd >= 0 && (::flock(fd, LOCK_EX) == 0 || errno == ENOLCK || errno == ENOSYS) && write_all(fd, text) &&
        ::fsync(fd) == 0 && is_at_path(record.path, fd)) {
      sync_directory(directory);
      return record;
    }
    problem = "cannot create a file in " + directory.string() + ": " + message(errno);
    if (fd >= 0) ::unlink(record.path.c_str());
  }
  return tl::unexpected(problem);
}

// Sets the present time, as any process with write access may, and makes it differ from `other_than_ns`.
bool renew_time_stamp(int fd, std::int64_t other_than_ns) {
  for (int i = 0; i < 100; ++i) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return false;
    if (status.st_mtim.tv_sec * 1'000'000'000L + status.st_mtim.tv_nsec != other_than_ns) return true;
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (::futimens(fd, nullptr) != 0) return false;
  }
  return false;
}

// Performs the write in the open file if the file still is at `target` and is `base`.
tl::expected<FileRead, EditError> write_open_file(int fd, const fs::path& target, const FileRead& base,
                                                  const PlannedWrite& planned) {
  constexpr std::chrono::milliseconds kPause{5};
  bool leased = take_write_lease(fd);
  for (int i = 0; !leased && errno == EAGAIN && i < 20; ++i) {
    std::this_thread::sleep_for(kPause);
    leased = take_write_lease(fd);
  }
  const auto unchanged = [&](const FileRead& expected) {
    const auto now = read_open_file(fd);
    return now && now->content.text == expected.content.text &&
           now->signature.same_save(expected.signature) && is_at_path(target, fd);
  };
  if (!unchanged(base)) return changed();
  if (!planned.perform(fd) || !renew_time_stamp(fd, base.signature.mtime_ns)) {
    const int code = errno;
    const auto ns = base.signature.mtime_ns;
    const timespec times[2] = {{0, UTIME_OMIT}, {ns / 1'000'000'000, ns % 1'000'000'000}};
    const bool undone = PlannedWrite{planned.after, planned.before}.perform(fd);
    if (undone) ::futimens(fd, times);
    auto kind = undone ? EditError::Kind::unwritable : EditError::Kind::stuck;
    return tl::unexpected(EditError{kind, "it cannot be written: " + message(code)});
  }
  auto written = read_open_file(fd);
  if (!written) return unwritable(written.error());
  if (!leased) std::this_thread::sleep_for(kPause);
  const bool kept = written->content.text == planned.after && unchanged(*written);
  ::fcntl(fd, F_SETLEASE, F_UNLCK);  // Other processes must not wait for the disk.
  if (!kept) return changed();
  if (::fsync(fd) != 0) return unwritable("it cannot be written: " + message(errno));
  return std::move(*written);
}

tl::expected<FileRead, EditError> write_in_place(const fs::path& target, const FileRead& base,
                                                 const FileContent& wanted, const fs::path& spare) {
  const PlannedWrite planned{base.content.text, wanted.text};
  const auto record = record_write(target, spare, planned);
  if (!record) return unwritable(record.error());
  const Descriptor file(::open(target.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  auto done = file.valid() ? write_open_file(file.get(), target, base, planned)
                           : unwritable("it cannot be opened: " + message(errno));
  if (done || done.error().kind != EditError::Kind::stuck) ::unlink(record->path.c_str());
  if (done) done->content.parsed = wanted.parsed;
  return done;
}

tl::expected<FileRead, EditError> put_new_file(const fs::path& target, const FileRead& base,
                                               const FileContent& wanted,
                                               std::vector<DisplacedFile>& displaced, Replacement how) {
  const auto fresh = target.parent_path() / (new_prefix(target) + random_suffix());
  const auto side = side_path(target, base.content.identity, wanted.identity.sha256);
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return unwritable("cannot create a file in its directory: " + message(errno));
  auto problem = write_new_file(fd, target, base, wanted.text);
  ::close(fd);
  const auto signature = sign_file(fresh);
  if (problem.empty() && !signature) problem = signature.error();
  if (problem.empty() && ::rename(fresh.c_str(), side.c_str()) != 0)
    problem = "it cannot be replaced: " + message(errno);
  if (!problem.empty()) {
    ::unlink(fresh.c_str());
    return unwritable(std::move(problem));
  }
  FileRead out{wanted, *signature};
  out.content.identity.mtime_ns = signature->mtime_ns;
  const auto done = put_in_place(target, side, base, out.signature, displaced, how);
  sync_directory(target.parent_path());
  if (!done) return tl::unexpected(done.error());
  return out;
}

std::vector<fs::path> files_with_prefix(const fs::path& directory, const std::string& prefix) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator i(directory, error), end; !error && i != end; i.increment(error)) {
    if (i->path().filename().string().rfind(prefix, 0) == 0) files.push_back(i->path());
  }
  return files;
}

std::chrono::nanoseconds unchanged_for(const FileSignature& file) {
  return std::chrono::system_clock::now().time_since_epoch() - std::chrono::nanoseconds(file.ctime_ns);
}

// Completes an interrupted write. Returns false if that is impossible now.
bool complete_write(const fs::path& target, const PlannedWrite& planned) {
  const Descriptor file(::open(target.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  const int fd = file.get();
  if (!file.valid()) return false;
  take_write_lease(fd);
  const auto now = read_open_file(fd);
  if (!now) return false;
  if (!planned.is_incomplete(now->content.text)) return true;
  if (!planned.perform(fd) || !renew_time_stamp(fd, now->signature.mtime_ns) || ::fsync(fd) != 0)
    return false;
  log_warn("completed a change of " + target.string() + " that an earlier run had begun");
  return true;
}

// Completes the writes of ended processes, which no longer lock their record.
LeftOvers complete_writes(const fs::path& directory, const fs::path& target, std::chrono::seconds age) {
  auto left_overs = LeftOvers::none;
  const auto objection = [](const struct stat& status) {
    const bool own = S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && status.st_nlink == 1;
    const bool bounded = static_cast<std::uint64_t>(status.st_size) <= 3 * kMaxJsonBytes;
    return own && bounded && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 ? "" : "not of this user alone";
  };
  for (const auto& file : files_with_prefix(directory, write_prefix(target))) {
    const Descriptor lock(::open(file.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    const auto record = sign_file(file);
    if (!lock.valid() || !record) continue;
    const bool young = unchanged_for(*record) < age;
    const bool in_use = ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || young);
    const auto text = read_checked_file(file, O_NOFOLLOW, objection);
    if (!text) continue;
    const auto planned = PlannedWrite::parse(*text);
    if (in_use || (planned ? !complete_write(target, *planned) : young)) {
      left_overs = LeftOvers::some;
    } else {
      ::unlink(file.c_str());
    }
  }
  return left_overs;
}

// True if the user's save in a side file is newer than the target: the target has gradmon's edit of an older
// save, or was put there before that save, or was exchanged with it at the same time.
bool is_newer(const FileRead& side, const FileRead& target, const SideName& name, const Recovery& recovery) {
  constexpr std::int64_t kSameTime = 50'000'000;  // ns between the ctimes of one exchange, at most
  if (target.content.identity.sha256.substr(0, kHashDigits) == name.new_hash) return true;
  if (target.signature.same_save(recovery.ours)) return side.signature.mtime_ns > recovery.user_save_ns;
  if (side.signature.mtime_ns > target.signature.ctime_ns) return true;
  const auto apart = target.signature.ctime_ns - side.signature.ctime_ns;
  return std::abs(apart) < kSameTime && side.signature.mtime_ns > target.signature.mtime_ns;
}

// Returns false if the side file must be checked again.
bool recover_side_file(const fs::path& file, const fs::path& target, Recovery& recovery) {
  const auto name = parse_side_name(file.filename().string(), side_prefix(target));
  const auto left = name ? read_file(file) : tl::unexpected(std::string());
  if (!left) return true;
  const bool is_save = !name->may_hold(left->content.identity);
  const auto age = unchanged_for(left->signature);
  if (age < (is_save ? recovery.save_age : recovery.age)) return false;
  if (is_save) {
    const auto now = read_file(target);
    if (!now) return false;
    if (!is_newer(*left, *now, *name, recovery)) {
      recovery.superseded.insert(file);
      return true;
    }
    if (!restore(file, target, now->signature).done) return false;
    log_warn("restored a config save that an earlier run had moved aside");
  }
  const auto open = is_open_elsewhere({target, file, left->signature});
  if (open == OpenElsewhere::yes) return false;
  if (open == OpenElsewhere::unknown && age < kMaxDisplacedTime + recovery.age) return false;
  ::unlink(file.c_str());
  return true;
}

// Returns "" or the reason why the file must not be written, for people.
std::string why_unwritable(const fs::path& file) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0) return "cannot stat it: " + std::generic_category().message(errno);
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  const bool closed = (status.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) == 0;
  if (closed || ::faccessat(AT_FDCWD, file.c_str(), W_OK, AT_EACCESS) != 0) return "it is read-only";
  return "";
}

}  // namespace

tl::expected<FileRead, EditError> replace_content(const fs::path& target, const FileRead& base,
                                                  const FileContent& wanted,
                                                  std::vector<DisplacedFile>& displaced, Replacement how,
                                                  const fs::path& spare) {
  if (auto obstacle = why_unwritable(target); !obstacle.empty()) return unwritable(std::move(obstacle));
  std::error_code error;
  std::string why;  // the reason why a new file cannot replace this one
  if (fs::hard_link_count(target, error) == 1) {
    auto done = put_new_file(target, base, wanted, displaced, how);
    if (done || done.error().kind != EditError::Kind::unwritable) return done;
    why = done.error().text + "; in place: ";
  }
  auto done = write_in_place(target, base, wanted, spare);
  if (!done) done.error().text.insert(0, done.error().kind == EditError::Kind::changed ? "" : why);
  return done;
}

Restored restore_if_written(const DisplacedFile& file, const FileSignature& ours,
                            std::vector<DisplacedFile>& displaced) {
  const auto side = sign_file(file.side);
  if (!side || side->same_save(file.signature)) return Restored::no;
  const auto target = sign_file(file.target);
  const bool target_is_ours = target && target->same_save(ours);
  if (target && !target_is_ours && target->mtime_ns >= side->mtime_ns) return Restored::superseded;
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

OpenElsewhere is_open_elsewhere(const DisplacedFile& file) {
  const Descriptor side(::open(file.side.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!side.valid()) return errno == ENOENT ? OpenElsewhere::no : OpenElsewhere::unknown;
  if (take_write_lease(side.get())) return OpenElsewhere::no;  // Only the lease proves it.
  return errno == EAGAIN ? OpenElsewhere::yes : OpenElsewhere::unknown;
}

LeftOvers recover_side_files(const fs::path& target, Recovery& recovery) {
  auto left_overs = complete_writes(target.parent_path(), target, recovery.age);
  if (!recovery.spare.empty() && complete_writes(recovery.spare, target, recovery.age) == LeftOvers::some)
    left_overs = LeftOvers::some;
  for (const auto& file : files_with_prefix(target.parent_path(), new_prefix(target))) {
    const auto left = sign_file(file);
    if (!left || unchanged_for(*left) < recovery.age) {
      left_overs = LeftOvers::some;
    } else {
      ::unlink(file.c_str());
    }
  }
  for (const auto& file : files_with_prefix(target.parent_path(), side_prefix(target))) {
    if (recovery.watched.count(file) == 0 && !recover_side_file(file, target, recovery))
      left_overs = LeftOvers::some;
  }
  return left_overs;
}

}  // namespace gradmon
