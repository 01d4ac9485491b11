// SPDX-License-Identifier: Apache-2.0
#include "control/config/file_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <system_error>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

FileWatch::FileWatch(fs::path path) : path_(std::move(path)), fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (fd_ < 0) {
    log_warn("polling the config file once a second, because inotify failed: " +
             std::generic_category().message(errno));
  }
  update_watches();
}

FileWatch::~FileWatch() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWatch::watch(const fs::path& directory, const std::string& name) {
  const int wd = inotify_add_watch(fd_, directory.c_str(), kMask);
  if (wd >= 0) names_[wd].insert(name);
}

void FileWatch::update_watches() {
  constexpr int kMaxLinks = 40;
  if (fd_ < 0) return;
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
    if (names_.count(wd) == 0) inotify_rm_watch(fd_, wd);
  }
}

std::vector<FileEvent> FileWatch::read_events() {
  constexpr int kMaxReads = 64;
  std::vector<FileEvent> events;
  alignas(inotify_event) std::array<char, 16'384> buffer;
  for (int i = 0; fd_ >= 0 && i < kMaxReads; ++i) {
    const auto got = ::read(fd_, buffer.data(), buffer.size());
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
  if (fd_ >= 0) events.push_back(FileEvent::events_lost);
  return events;
}

}  // namespace gradmon
