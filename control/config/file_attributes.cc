// SPDX-License-Identifier: Apache-2.0
#include "control/config/file_attributes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace gradmon {
namespace {

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

}  // namespace

std::string copy_attributes(const std::filesystem::path& source, int fd) {
  struct stat from {};
  struct stat to {};
  if (::stat(source.c_str(), &from) != 0 || ::fstat(fd, &to) != 0) return "its attributes cannot be read";
  const bool same_owner = from.st_uid == to.st_uid && from.st_gid == to.st_gid;
  if (!same_owner && ::fchown(fd, from.st_uid, from.st_gid) != 0) return "its owner cannot be preserved";
  if (::fchmod(fd, from.st_mode & 07777U) != 0) return "its mode cannot be preserved";
  return copy_extended(source.c_str(), fd);
}

std::string why_unwritable(const std::filesystem::path& file) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0) return "cannot stat it: " + std::generic_category().message(errno);
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  const bool closed = (status.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) == 0;
  if (closed || ::faccessat(AT_FDCWD, file.c_str(), W_OK, AT_EACCESS) != 0) return "it is read-only";
  return "";
}

}  // namespace gradmon
