// SPDX-License-Identifier: Apache-2.0
// Reports changes of a path: inotify on the directory of the file and of every symbolic link on the way
// to it, because files and links are replaced by rename. Network and overlay file systems may send no
// events, so the caller must poll the file as well. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gradmon {

enum class FileEvent : std::uint8_t {
  replaced,            // a complete file was renamed to this name
  written,             // bytes or length changed
  closed,              // closed by a process that had it open for writing
  attributes_changed,  // attributes changed, or the time stamp
  other,               // created, perhaps not yet written, or removed
  events_lost,         // events were lost, or a directory went away: anything may have happened
};

class FileWatch {
 public:
  explicit FileWatch(std::filesystem::path path);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Readable when events have arrived; -1 if inotify failed (logged once).
  int fd() const { return fd_; }

  // Watches the present links. Call it before each read of the file.
  void update_watches();

  // Returns the events of the file and its links since the last call, in order. Never blocks.
  std::vector<FileEvent> read_events();

 private:
  void watch(const std::filesystem::path& directory, const std::string& name);

  const std::filesystem::path path_;
  int fd_ = -1;
  std::map<int, std::set<std::string>> names_;  // names watched, by watch descriptor
};

}  // namespace gradmon
