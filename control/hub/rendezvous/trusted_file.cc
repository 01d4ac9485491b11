// SPDX-License-Identifier: Apache-2.0
#include "control/hub/rendezvous/trusted_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "control/files/descriptor.h"
#include "control/host/private_directory.h"
#include "control/host/process_identity.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr off_t kMostBytes = 64 * 1024;

std::string problem(const fs::path& path) { return path.string() + ": " + std::strerror(errno); }

bool trusted(const struct stat& status) {
  const bool ours = status.st_uid == geteuid() || status.st_uid == 0;
  return S_ISREG(status.st_mode) && ours && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
         status.st_size <= kMostBytes;
}

}  // namespace

std::string read_trusted_file(const fs::path& file) {
  const Descriptor fd(open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0 || !trusted(status)) return "";
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

tl::expected<void, std::string> keep_trusted_file(const fs::path& file, const std::string& text) {
  if (read_trusted_file(file) == text) return {};
  if (auto made = make_private_directory(file.parent_path()); !made) return made;
  const fs::path beside = file.string() + "." + random_hex(8);
  const Descriptor fd(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd.valid()) return tl::unexpected(problem(beside));
  const bool whole = write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (whole && rename(beside.c_str(), file.c_str()) == 0) return {};
  std::string why = problem(file);
  unlink(beside.c_str());
  return tl::unexpected(std::move(why));
}

}  // namespace gradmon
