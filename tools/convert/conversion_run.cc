// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/conversion_run.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <future>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "control/files/file_access.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEventFile = "events.out.tfevents.";
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

struct Move {
  fs::path from;
  fs::path to;
  bool replaces = false;  // exchanges both
};

tl::unexpected<std::string> failure(const fs::path& path, const std::error_code& error) {
  return tl::unexpected(path.string() + ": " + error.message());
}

tl::expected<std::vector<fs::path>, std::string> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error) return failure(directory, error);
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The error: it is not a directory of event files alone.
tl::expected<void, std::string> check_event_directory(const fs::path& directory) {
  std::error_code error;
  if (fs::symlink_status(directory, error).type() != fs::file_type::directory)
    return tl::unexpected(directory.string() + " is there already; expected a directory of event files");
  const auto entries = entries_of(directory);
  if (!entries) return tl::unexpected(entries.error());
  for (const fs::path& entry : *entries) {
    const bool file = fs::symlink_status(entry, error).type() == fs::file_type::regular;
    if (!file || entry.filename().string().rfind(kEventFile, 0) != 0)
      return tl::unexpected(entry.string() +
                            " is no event file; expected nothing else in a directory that is replaced");
  }
  return {};
}

tl::expected<std::vector<Move>, std::string> moves_between(const fs::path& from, const fs::path& to) {
  std::vector<Move> moves;
  const auto ranks = entries_of(from);
  if (!ranks) return tl::unexpected(ranks.error());
  for (const fs::path& rank : *ranks) {
    const auto kinds = entries_of(rank);
    if (!kinds) return tl::unexpected(kinds.error());
    for (const fs::path& kind : *kinds) {
      Move move{kind, to / rank.filename() / kind.filename()};
      std::error_code error;
      move.replaces = fs::exists(fs::symlink_status(move.to, error));
      if (move.replaces) {
        if (auto checked = check_event_directory(move.to); !checked) return tl::unexpected(checked.error());
      }
      moves.push_back(std::move(move));
    }
  }
  return moves;
}

int rename_with(const fs::path& from, const fs::path& to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
}

// Some file systems cannot exchange: then moves the old one away first.
bool exchange(const fs::path& from, const fs::path& to) {
  if (rename_with(from, to, RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL) return false;
  const fs::path aside = from.string() + ".old";
  if (::rename(to.c_str(), aside.c_str()) != 0) return false;
  const bool moved = ::rename(from.c_str(), to.c_str()) == 0;
  if (moved && ::rename(aside.c_str(), from.c_str()) == 0) return true;
  const int error = errno;
  if (moved) static_cast<void>(::rename(to.c_str(), from.c_str()));
  static_cast<void>(::rename(aside.c_str(), to.c_str()));
  errno = error;
  return false;
}

bool carry_out(const Move& move) {
  if (move.replaces) return exchange(move.from, move.to);
  if (rename_with(move.from, move.to, RENAME_NOREPLACE) == 0) return true;
  // Plain rename() never replaces a directory that has files.
  return errno == EINVAL && ::rename(move.from.c_str(), move.to.c_str()) == 0;
}

void undo(const Move& move) {
  if (move.replaces) {
    static_cast<void>(exchange(move.to, move.from));
  } else {
    static_cast<void>(::rename(move.to.c_str(), move.from.c_str()));
  }
}

// Moves each directory `from`/rank{R}/{prefix} to `to`/rank{R}/{prefix}, and changes nothing else in `to`.
// Replaces an existing one if it has only event files; the old one ends up below `from`. At any moment each
// of them is the old one or the new one, complete; on a file system that cannot exchange two names, one is
// missing for a moment. After an error `to` is unchanged; the error names the path. `from` and `to` must be
// on one file system. Returns the number of replaced directories.
tl::expected<std::size_t, std::string> move_curve_directories(const fs::path& from, const fs::path& to) {
  const auto moves = moves_between(from, to);
  if (!moves) return tl::unexpected(moves.error());
  std::size_t done = 0;
  std::string error;
  for (const Move& move : *moves) {
    if (auto made = make_directories(move.to.parent_path()); !made) {
      error = made.error();
      break;
    }
    if (!carry_out(move)) {
      error = "cannot give " + move.from.string() + " the name " + move.to.string() + ": " +
              std::system_category().message(errno);
      break;
    }
    ++done;
  }
  if (done == moves->size())
    return static_cast<std::size_t>(
        std::count_if(moves->begin(), moves->end(), [](const Move& move) { return move.replaces; }));
  while (done > 0) undo((*moves)[--done]);
  for (const Move& move : *moves)
    ::rmdir(move.to.parent_path().c_str());  // if it was made here, and is empty
  return tl::unexpected(error);
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

namespace {

constexpr std::chrono::milliseconds kInterval{250};
constexpr double kFirstEstimate = 0.01;  // share of the bytes, below which the remaining time is unknown
constexpr const char* kClearLine = "\r\x1b[K";

std::string whole(double value) { return std::to_string(static_cast<std::int64_t>(std::llround(value))); }

}  // namespace

std::string progress_text(std::uint64_t rows, std::uint64_t bytes_read, std::uint64_t bytes_of_all,
                          double seconds) {
  const double share =
      bytes_of_all == 0 ? 1
                        : std::min(1.0, static_cast<double>(bytes_read) / static_cast<double>(bytes_of_all));
  std::string text = whole(std::floor(100 * share)) + " %, " + std::to_string(rows) + " rows";
  if (seconds <= 0) return text;
  text += ", " + whole(static_cast<double>(rows) / seconds) + " rows/s";
  if (share < kFirstEstimate) return text;
  return text + ", " + whole(seconds * (1 - share) / share) + " s left";
}

void ConversionProgress::show(const ConversionMeter& meter) {
  const Clock::time_point now = Clock::now();
  if (terminal_ == nullptr || now - shown_ < kInterval) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - began_).count();
  *terminal_ << kClearLine << progress_text(meter.rows, meter.bytes, bytes_of_all_, seconds) << std::flush;
}

void ConversionProgress::clear() {
  if (terminal_ != nullptr && shown_ != began_) *terminal_ << kClearLine << std::flush;
}

namespace {

// Receives SIGINT, SIGTERM and SIGHUP without a handler: blocks them during its lifetime in this thread and
// in threads started meanwhile. Main thread.
class StopRequest {
 public:
  StopRequest();
  // Ends the process by the signal if one was received.
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Returns true if one of the signals has been received.
  bool received();

 private:
  sigset_t signals_;
  sigset_t before_;
  int signal_ = 0;
};

StopRequest::StopRequest() {
  sigemptyset(&signals_);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    const bool ignored = ::sigaction(one, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored) sigaddset(&signals_, one);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
}

bool StopRequest::received() {
  const struct timespec at_once {};
  const int found = signal_ != 0 ? signal_ : ::sigtimedwait(&signals_, nullptr, &at_once);
  if (found > 0) signal_ = found;
  return signal_ != 0;
}

StopRequest::~StopRequest() {
  if (signal_ != 0) ::raise(signal_);  // delivered when the mask is restored
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

constexpr std::chrono::milliseconds kLookInterval{50};

void report(const Problems& problems, const Console& console) {
  for (const std::string& message : problems.messages()) report_error(message, console);
}

// Runs the conversion on its own thread and waits for it.
tl::expected<void, std::string> write_watched(const Conversion& conversion, const std::filesystem::path& path,
                                              ConversionMeter& meter, Problems& problems, StopRequest& stop,
                                              const Console& console) {
  auto work = std::make_shared<std::packaged_task<tl::expected<void, std::string>()>>(
      [&] { return conversion.write(path, meter, problems); });
  auto done = work->get_future();
  const OnThreads thread(1, [work] { (*work)(); });
  ConversionProgress progress(conversion.bytes, ::isatty(STDERR_FILENO) == 1 ? &console.err : nullptr);
  while (done.wait_for(kLookInterval) != std::future_status::ready) {
    if (stop.received()) meter.stop = true;
    progress.show(meter);
  }
  progress.clear();
  return done.get();
}

std::string summary(const std::vector<int>& ranks, const ConversionMeter& meter,
                    const std::filesystem::path& target, std::size_t replaced) {
  std::string text = std::to_string(meter.rows) + " rows of " + rank_ranges(ranks) + " in " +
                     printable(target.string()) + '\n';
  if (meter.repeated > 0)
    text += std::to_string(meter.repeated) +
            " rows are left out, of steps that a later start of the job has collected again\n";
  if (replaced > 0)
    text += std::to_string(replaced) + " files or directories of an earlier conversion are replaced\n";
  return text;
}

int convert(const Conversion& conversion, Problems& problems, StopRequest& stop, const Console& console) {
  auto output = UnfinishedOutput::begin(conversion.target, conversion.earlier);
  if (!output) return report_error(output.error(), console);
  ConversionMeter meter;
  const auto written = write_watched(conversion, output->path(), meter, problems, stop, console);
  if (stop.received()) return report_error("interrupted; nothing was written", console);
  report(problems, console);
  if (!written) return report_error(written.error(), console);
  if (meter.rows == 0)
    return report_error("found no rows in " + conversion.input +
                            "; expected files such as grad_reduced_0-0.csv in the directories of its ranks",
                        console);
  const auto replaced = output->finish();
  if (!replaced) return report_error(replaced.error(), console);
  console.out << summary(conversion.ranks, meter, output->target(), *replaced);
  return kExitDone;
}

}  // namespace

int run_conversion(const Conversion& conversion, Problems& problems, const Console& console) {
  StopRequest stop;  // Destroyed last: it may end the process.
  const int code = convert(conversion, problems, stop, console);
  console.out.flush();
  console.err.flush();
  return code;
}

}  // namespace gradmon
