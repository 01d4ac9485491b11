// SPDX-License-Identifier: Apache-2.0
// Tells when something happens to a path: inotify on the directory of the file
// and of every symbolic link on the way to it, because files and links are
// replaced by rename. Network and overlay file systems may say nothing: ask the
// file itself now and then as well. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gradmon {

enum class FileEvent : std::uint8_t {
  replaced,  // something was renamed to this name, whole
  created,   // something new has this name, perhaps not yet written
  written,   // bytes or length changed
  closed,    // closed by one who had it open for writing
  touched,   // attributes, among them the time stamp
  removed,
  lost,  // events were lost, or a directory went away: anything may have happened
};

class FileWatch {
 public:
  explicit FileWatch(std::filesystem::path path);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Readable when there are events; -1 where there can be none (no inotify
  // instance left, said once in the log).
  int fd() const { return fd_; }

  // Follows the links as they are now. Call it before looking at the file.
  void arm();

  // What has happened to the file or a link since, in order. Never blocks.
  std::vector<FileEvent> drain();

 private:
  void watch(const std::filesystem::path& directory, const std::string& name);

  const std::filesystem::path path_;
  int fd_ = -1;
  std::map<int, std::set<std::string>> names_;  // of interest, by watch descriptor
};

}  // namespace gradmon
