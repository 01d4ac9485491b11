// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/key_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "control/files/checked_file.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargest = std::size_t{1} << 20U;
constexpr mode_t kOthersRead = 0077;
constexpr mode_t kOthersWrite = 0022;

std::string mode_text(const struct stat& status) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", status.st_mode & 07777U);
  return text.data();
}

std::string cause(const fs::path& path) { return path.string() + ": " + std::strerror(errno); }

std::string owner_objection(const fs::path& path, const struct stat& status) {
  if (status.st_uid == geteuid() || status.st_uid == 0) return "";
  return path.string() + ": belongs to uid " + std::to_string(status.st_uid) + ", not to uid " +
         std::to_string(geteuid()) + " who runs this";
}

std::string file_objection(const fs::path& file, const struct stat& status, KeyAccess access) {
  if (!S_ISREG(status.st_mode)) return file.string() + ": not a regular file";
  if (std::string why = owner_objection(file, status); !why.empty()) return why;
  if (access == KeyAccess::owner_only && (status.st_mode & kOthersRead) != 0)
    return file.string() + ": others can use it (mode " + mode_text(status) + "): chmod 600 it";
  if ((status.st_mode & kOthersWrite) != 0)
    return file.string() + ": others can write it (mode " + mode_text(status) + "): chmod go-w it";
  if (static_cast<std::size_t>(status.st_size) > kLargest) return file.string() + ": larger than 1 MiB";
  return "";
}

}  // namespace

std::string key_directory_objection(const fs::path& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) {
    const bool missing = errno == ENOENT;
    return cause(directory) +
           (missing ? "; \"gradmonctl keygen " + directory.string() + "\" makes a directory of keys" : "");
  }
  if (!S_ISDIR(status.st_mode)) return directory.string() + ": not a directory";
  if (std::string why = owner_objection(directory, status); !why.empty()) return why;
  if ((status.st_mode & kOthersWrite) != 0)
    return directory.string() + ": others can write it (mode " + mode_text(status) + "): chmod 700 it";
  return "";
}

tl::expected<std::string, std::string> read_key_file(const fs::path& file, KeyAccess access) {
  return read_checked_file(file, 0,
                           [&](const struct stat& status) { return file_objection(file, status, access); });
}

}  // namespace gradmon
