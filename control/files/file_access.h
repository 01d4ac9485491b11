// SPDX-License-Identifier: Apache-2.0
// Reads and writes of whole files; writes can survive a crash of the machine. Any thread; does file I/O.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <system_error>

#include "control/aliases.h"

namespace gradmon {

// "/the/path: No such file or directory". `code`: an errno.
inline tl::unexpected<std::string> path_error(const fs::path& path, int code) {
  return tl::unexpected<std::string>(path.string() + ": " + std::generic_category().message(code));
}

// "cannot VERB /the/path: No such file or directory". `code`: an errno.
inline tl::unexpected<std::string> path_error(const std::string& verb, const fs::path& path, int code) {
  return tl::unexpected("cannot " + verb + " " + path_error(path, code).value());
}

// Creates a directory and its missing parents with mode 0750 (less the umask). Existing directories keep
// their mode. Any thread.
Result<void> make_directories(const fs::path& directory);

// Writes all bytes, but does not sync. On false, errno has the cause.
[[nodiscard]] bool write_all(int fd, std::string_view bytes);

// Appends the rest of the file, at most `most` bytes and one more. On false, errno has the cause.
[[nodiscard]] bool read_rest(int fd, std::size_t most, std::string& to);

// The mode of a file as "0640".
std::string mode_text(mode_t mode);

// True if the last line of a file, open for reading, is incomplete: after a kill or a full disk.
bool ends_within_a_line(int fd);

// {file}.1, the older part of a file that is bounded by make_room().
fs::path rotated(const fs::path& file);

// Call it before appending `bytes` bytes to a file. A file that would then exceed `most_bytes` becomes
// {file}.1. If that replaced an earlier {file}.1, returns the first line for the new file, else "".
std::string make_room(const fs::path& file, std::size_t bytes, std::size_t most_bytes);

// Creates (mode 0640) or overwrites a file and syncs it. Refuses a symbolic link. The file's name survives a
// crash only after sync_directory(). Removes the file if writing fails.
[[nodiscard]] Result<void> write_durably(const fs::path& file, std::string_view bytes);

// Replaces a file by rename, so that readers see either all old bytes or all new ones. The new file has this
// mode and is synced; its name survives a crash only after sync_directory(). A failure changes nothing.
[[nodiscard]] Result<void> replace_file(const fs::path& file, std::string_view bytes, mode_t mode);

// Syncs the directory: files created, renamed or removed in it remain so after a crash of the machine. The
// error is "DIRECTORY: cause"; some file systems do not support it.
Result<void> sync_directory(const fs::path& directory);

// Reads a whole file if `objection`, called with the status of the open file, returns "". Never waits for a
// FIFO and never makes a terminal the controlling one. `flags`: flags of open(2) in addition to O_RDONLY. The
// error is the objection or "FILE: cause". The returned string is the only copy. Any thread.
Result<std::string> read_checked_file(const fs::path& file, int flags,
                                      const std::function<std::string(const struct stat&)>& objection);

}  // namespace gradmon
