// SPDX-License-Identifier: Apache-2.0
#include "control/hub/rendezvous/trusted_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/files/checked_file.h"
#include "control/files/durable_file.h"
#include "control/files/make_directories.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr off_t kMostBytes = 64 * 1024;

std::string objection(const struct stat& status) {
  const bool ours = status.st_uid == geteuid() || status.st_uid == 0;
  const bool trusted = S_ISREG(status.st_mode) && ours && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
                       status.st_size <= kMostBytes;
  return trusted ? "" : "not trusted";
}

}  // namespace

std::string read_trusted_file(const fs::path& file) {
  return read_checked_file(file, O_NOFOLLOW, objection).value_or("");
}

tl::expected<void, std::string> replace_trusted_file(const fs::path& file, const std::string& text) {
  if (read_trusted_file(file) == text) return {};
  if (auto made = make_directories(file.parent_path()); !made) return made;
  return replace_file(file, text, 0644);
}

}  // namespace gradmon
