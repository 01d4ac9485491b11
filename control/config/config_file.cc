// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_file.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "control/config/config_parser.h"
#include "control/log.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kStatEvery{1000};
constexpr milliseconds kHashEvery{10'000};
constexpr milliseconds kSettleTime{100};                // a new content must stay unchanged for this time
constexpr milliseconds kSettleTimeWithoutEvents{1000};  // the same, without events
constexpr milliseconds kSettleTimeWhileOpen{2000};      // the same, while its writer has it open
constexpr milliseconds kProblemDelay{1000};             // delay of the report of a broken or missing file
constexpr milliseconds kReportPause{250};
constexpr milliseconds kMinDisplacedTime{2000};
constexpr milliseconds kDisplacedPollInterval{50};
constexpr seconds kRecoverEvery{2};
constexpr seconds kRecoverFor{20};

// True if the last save is over a second ago: the file is complete.
bool is_old(const FileSignature& signature) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto age = now - std::chrono::nanoseconds(signature.mtime_ns);
  return age > kProblemDelay || age < -kProblemDelay;
}

constexpr std::uint32_t kMask = IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_MODIFY |
                                IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr std::uint32_t kLost = IN_Q_OVERFLOW | IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT;

FileEvent to_event(std::uint32_t mask) {
  if ((mask & IN_MOVED_TO) != 0) return FileEvent::replaced;
  if ((mask & IN_MODIFY) != 0) return FileEvent::written;
  if ((mask & IN_CLOSE_WRITE) != 0) return FileEvent::closed;
  if ((mask & IN_ATTRIB) != 0) return FileEvent::attributes_changed;
  return FileEvent::other;
}

fs::path target_of(const fs::path& path) {
  std::error_code error;
  const auto target = fs::canonical(path, error);
  return error ? path : target;
}

}  // namespace

FileWatch::FileWatch(fs::path path) : path_(std::move(path)), fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (!fd_.valid()) {
    log_warn("polling the config file once a second, because inotify failed: " +
             std::generic_category().message(errno));
  }
  update_watches();
}

void FileWatch::watch(const fs::path& directory, const std::string& name) {
  const int wd = inotify_add_watch(fd(), directory.c_str(), kMask);
  if (wd >= 0) names_[wd].insert(name);
}

void FileWatch::update_watches() {
  constexpr int kMaxLinks = 40;
  if (!fd_.valid()) return;
  const auto before = std::exchange(names_, {});
  std::error_code error;
  const auto absolute = fs::absolute(path_, error);
  std::deque<fs::path> rest(absolute.begin(), absolute.end());
  fs::path here = "/";
  for (int links = 0; !rest.empty() && links < kMaxLinks;) {
    const auto name = rest.front();
    rest.pop_front();
    if (name.empty() || name == "." || name == "/") continue;
    const auto next = here / name;
    const auto type = fs::symlink_status(next, error).type();
    if (type == fs::file_type::symlink) {
      watch(here, name);
      ++links;
      const auto target = fs::read_symlink(next, error);
      rest.insert(rest.begin(), target.begin(), target.end());
      if (target.is_absolute()) here = "/";
    } else if (rest.empty() || type == fs::file_type::not_found) {
      watch(here, name);
      break;
    } else {
      here = next;
    }
  }
  for (const auto& [wd, names] : before) {
    if (names_.count(wd) == 0) inotify_rm_watch(fd(), wd);
  }
}

std::vector<FileEvent> FileWatch::read_events() {
  constexpr int kMaxReads = 64;
  std::vector<FileEvent> events;
  alignas(inotify_event) std::array<char, 16'384> buffer;
  for (int i = 0; fd_.valid() && i < kMaxReads; ++i) {
    const auto got = ::read(fd(), buffer.data(), buffer.size());
    if (got <= 0) return events;
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const auto watched = names_.find(event.wd);
      const char* const name = event.len == 0 ? "" : buffer.data() + at + sizeof event;
      at += sizeof event + event.len;
      if ((event.mask & kLost) != 0) {
        if (watched != names_.end() || event.wd < 0) events.push_back(FileEvent::events_lost);
        if ((event.mask & IN_IGNORED) != 0) names_.erase(event.wd);
      } else if (watched != names_.end() && watched->second.count(name) != 0) {
        events.push_back(to_event(event.mask));
      }
    }
  }
  if (fd_.valid()) events.push_back(FileEvent::events_lost);
  return events;
}

ConfigFile::ConfigFile(fs::path path, Clock clock, fs::path spare)
    : path_(std::move(path)), clock_(std::move(clock)), watch_(path_), next_stat_(clock_()) {
  next_hash_ = next_stat_ + kHashEvery;
  recovery_.spare = std::move(spare);
  recover_until_ = next_stat_ + kRecoverFor;
  recover(next_stat_);
}

ConfigFile::~ConfigFile() { release_displaced(); }

milliseconds ConfigFile::next_poll() const {
  const auto now = clock_();
  auto due = next_stat_;
  if (may_have_changed_) due = now;
  if (candidate_) due = std::min(due, std::max(now, candidate_->since + candidate_->pause));
  if (last_report_ && (may_have_changed_ || candidate_)) due = std::max(due, *last_report_ + kReportPause);
  const auto young = [now](const auto& entry) { return now - entry.since < kMaxDisplacedTime; };
  if (std::any_of(displaced_.begin(), displaced_.end(), young))
    due = std::min(due, now + kDisplacedPollInterval);
  return std::clamp(std::chrono::ceil<milliseconds>(due - now), milliseconds(0), kStatEvery);
}

std::optional<Result<FileContent>> ConfigFile::poll() {
  const auto now = clock_();
  take_events();
  check_displaced(now);
  if (now >= recover_at_) recover(now);
  if (!may_have_changed_ && !candidate_ && now < next_stat_) return std::nullopt;
  if (last_report_ && now < *last_report_ + kReportPause) return std::nullopt;
  next_stat_ = now + kStatEvery;

  auto seen = read_if_changed(now);
  if (!seen) {
    const auto problem = report_problem(seen.error(), now);
    if (!problem) return std::nullopt;
    return tl::unexpected(*problem);
  }
  problem_.reset();
  polled_ = true;
  if (seen->known || !seen->settled) return std::nullopt;
  remember(seen->read);
  last_report_ = now;
  return std::move(seen->read.content);
}

void ConfigFile::recover(Time now) {
  recovery_.watched.clear();
  for (const auto& entry : displaced_) recovery_.watched.insert(entry.displaced.side);
  const bool again = recover_side_files(target_of(path_), recovery_) == LeftOvers::some;
  recover_at_ = again || now < recover_until_ ? now + kRecoverEvery : Time::max();
}

std::vector<std::string> ConfigFile::superseded_saves() const {
  std::vector<std::string> lines;
  std::error_code error;
  for (const auto& side : recovery_.superseded) {
    if (fs::exists(side, error))
      lines.push_back("an earlier save is in " + side.string() + ": copy it or remove it");
  }
  return lines;
}

void ConfigFile::take_events() {
  for (const auto event : watch_.read_events()) {
    may_have_changed_ = true;
    events_seen_ = true;
    const bool harmless = event == FileEvent::attributes_changed || event == FileEvent::closed;
    replaced_ = event == FileEvent::replaced || (replaced_ && harmless);
    if (event == FileEvent::written) writing_ = true;
    if (event == FileEvent::closed || event == FileEvent::replaced || event == FileEvent::events_lost)
      writing_ = false;
  }
}

// Reads the file if it may have changed.
Result<ConfigFile::Observation> ConfigFile::read_if_changed(Time now) {
  constexpr int kMaxReads = 4;
  watch_.update_watches();
  Observation out;
  for (int i = 0; i < kMaxReads; ++i) {
    const bool hash_is_due = now >= next_hash_;
    const auto signature = sign_file(path_);
    if (!signature) return tl::unexpected(signature.error());
    out.known = known_ && *signature == known_signature_ && !may_have_changed_ && !hash_is_due;
    if (out.known) {
      candidate_.reset();
      return out;
    }
    may_have_changed_ = false;
    auto read = read_file(path_);
    if (!read) return tl::unexpected(read.error());
    out.read = std::move(*read);
    next_hash_ = now + kHashEvery;
    take_events();
    if (!may_have_changed_) break;
  }
  out.known = known_ && out.read.content.identity == *known_;
  if (out.known) {
    candidate_.reset();
    known_signature_ = out.read.signature;
    replaced_ = false;
    events_seen_ = writing_;
    return out;
  }
  out.settled = !may_have_changed_ && is_settled(out.read, now);
  return out;
}

const JsonText& ConfigFile::parse(FileContent& content) {
  if (!parsed_ || parsed_->sha256 != content.identity.sha256) {
    JsonText json(content.text);
    auto config = std::make_shared<const ConfigResult>(parse_config(json, path_.string()));
    parsed_ = Parsed{content.identity.sha256, std::move(json), std::move(config)};
  }
  content.parsed = parsed_->config;
  return parsed_->json;
}

bool ConfigFile::is_settled(FileRead& read, Time now) {
  const auto& identity = read.content.identity;
  if (!candidate_ || candidate_->identity != identity) candidate_ = Candidate{identity, now, kSettleTime};
  const bool at_once = (replaced_ || (!known_ && !events_seen_ && is_old(read.signature)));
  auto pause = at_once ? milliseconds(0) : events_seen_ || !known_ ? kSettleTime : kSettleTimeWithoutEvents;
  if (writing_) pause = kSettleTimeWhileOpen;
  if (!parse(read.content).is_object()) pause = std::max(pause, kProblemDelay);
  candidate_->pause = pause;
  return now - candidate_->since >= pause;
}

void ConfigFile::remember(const FileRead& read) {
  known_ = read.content.identity;
  known_signature_ = read.signature;
  candidate_.reset();
  replaced_ = false;
  events_seen_ = writing_;
}

std::optional<std::string> ConfigFile::report_problem(const std::string& problem, Time now) {
  may_have_changed_ = false;
  candidate_.reset();
  if (problem_ != problem) {
    problem_ = problem;
    problem_since_ = now;
    problem_reported_ = false;
  }
  if (problem_reported_ || (polled_ && now - problem_since_ < kProblemDelay)) return std::nullopt;
  polled_ = true;
  problem_reported_ = true;
  known_.reset();
  events_seen_ = false;
  return problem;
}

void ConfigFile::check_displaced(Time now) {
  std::vector<DisplacedEntry> kept;
  for (const auto& watched : std::exchange(displaced_, {})) {
    const auto age = now - watched.since;
    // Checked before the last comparison: a file that is open nowhere cannot be written to later.
    const auto open = age >= kMinDisplacedTime ? is_open_elsewhere(watched.displaced) : OpenElsewhere::yes;
    std::vector<DisplacedFile> more;
    const auto restored = restore_if_written(watched.displaced, recovery_.ours, more);
    for (auto& file : more) kept.push_back({std::move(file), clock_()});
    if (restored == Restored::failed || restored == Restored::superseded) {
      recover_at_ = std::min(recover_at_, now + kRecoverEvery);
    } else if (restored == Restored::yes) {
      take_events();
      replaced_ = false;
    } else if (open == OpenElsewhere::no || (open == OpenElsewhere::unknown && age >= kMaxDisplacedTime)) {
      discard(watched.displaced);
    } else {
      kept.push_back(watched);
    }
  }
  displaced_ = std::move(kept);
}

// A displaced file that may be open elsewhere stays; the next job recovers it.
void ConfigFile::release_displaced() {
  check_displaced(clock_());
  for (const auto& watched : displaced_) {
    if (is_open_elsewhere(watched.displaced) == OpenElsewhere::no) discard(watched.displaced);
  }
}

tl::expected<FileRead, EditError> ConfigFile::present_content() const {
  auto read = read_file(path_);
  if (!read) return tl::unexpected(EditError{EditError::Kind::unreadable, read.error()});
  return std::move(*read);
}

tl::expected<FileRead, EditError> ConfigFile::settled_content() {
  constexpr milliseconds kStep{5};
  constexpr milliseconds kLongest{3000};
  const auto start = std::chrono::steady_clock::now();
  do {
    take_events();
    may_have_changed_ = true;
    auto seen = read_if_changed(clock_());
    if (!seen) return tl::unexpected(EditError{EditError::Kind::unreadable, seen.error()});
    if (seen->known || seen->settled) return std::move(seen->read);
    std::this_thread::sleep_for(kStep);
  } while (std::chrono::steady_clock::now() - start < kLongest);
  return tl::unexpected(EditError{EditError::Kind::changed, "the file is being written"});
}

tl::expected<FileContent, EditError> ConfigFile::edit(const Edits& edits,
                                                      const std::optional<FileIdentity>& based_on,
                                                      const BeforeWrite& before_write) {
  constexpr int kMaxTries = 5;
  for (int i = 1;; ++i) {
    auto done = edit_once(edits, based_on, before_write);
    if (done || done.error().kind != EditError::Kind::changed || based_on || i == kMaxTries) return done;
  }
}

tl::expected<FileContent, EditError> ConfigFile::edit_once(const Edits& edits,
                                                           const std::optional<FileIdentity>& based_on,
                                                           const BeforeWrite& before_write) {
  using Why = EditError::Kind;
  const auto fail = [](Why kind, std::string text) {
    return tl::unexpected(EditError{kind, std::move(text)});
  };
  auto base = based_on ? present_content() : settled_content();
  if (!base) return tl::unexpected(base.error());
  if (based_on && base->content.identity != *based_on) return fail(Why::changed, kSavedMeanwhile);

  auto json = set_values(parse(base->content), edits);
  if (!json) return fail(Why::invalid, json.error());
  auto config = std::make_shared<const ConfigResult>(parse_config(*json, path_.string()));
  if (!*config) return fail(Why::invalid, to_string(config->error()));
  const FileContent wanted{json->text, {0, json->text.size(), sha256_hex(json->text)}, config};
  if (before_write) before_write(wanted.identity.sha256);

  std::vector<DisplacedFile> displaced;
  const auto done =
      replace_content(target_of(path_), *base, wanted, displaced, Replacement::exchange, recovery_.spare);
  for (auto& file : displaced) displaced_.push_back({std::move(file), clock_()});
  take_events();
  if (!done) {
    replaced_ = false;
    if (done.error().kind == Why::stuck) recover_at_ = std::min(recover_at_, clock_() + kRecoverEvery);
    return tl::unexpected(done.error());
  }
  if (!base->signature.same_save(recovery_.ours)) recovery_.user_save_ns = base->signature.mtime_ns;
  recovery_.ours = done->signature;
  const auto now = sign_file(path_);
  if (!now || !now->same_save(done->signature)) return fail(Why::changed, kSavedMeanwhile);
  remember(*done);
  parsed_ = Parsed{wanted.identity.sha256, std::move(*json), std::move(config)};
  return done->content;
}

}  // namespace gradmon
