// SPDX-License-Identifier: Apache-2.0
#include "control/client/access_denial.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::string name_of(uid_t user) {
  const passwd* entry = getpwuid(user);
  return entry == nullptr ? "uid " + std::to_string(user) : entry->pw_name;
}

std::string name_and_number(uid_t user) {
  const std::string name = name_of(user);
  const std::string number = "uid " + std::to_string(user);
  return name == number ? name : name + " (" + number + ")";
}

// Returns the directory that denies access: the path itself, or else the last directory on the way to it that
// stat() can reach.
fs::path denying_path(const fs::path& path, struct stat& found) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  fs::path place = error ? path : whole;
  if (!place.has_filename()) place = place.parent_path();  // the path ended with a slash
  while (stat(place.c_str(), &found) != 0 && place != place.parent_path()) place = place.parent_path();
  return place;
}

}  // namespace

std::string access_denial(const fs::path& path, Access access) {
  struct stat found {};
  const bool there = stat(path.c_str(), &found) == 0;
  if (!there && errno != EACCES) return "";
  const int enter = there && S_ISDIR(found.st_mode) ? X_OK : 0;
  const int wanted = access == Access::connect ? W_OK : R_OK | enter;
  if (faccessat(AT_FDCWD, path.c_str(), wanted, AT_EACCESS) == 0 || errno != EACCES) return "";
  const fs::path place = denying_path(path, found);
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(found.st_mode & 07777U));
  const std::string owner = name_of(found.st_uid);
  const std::string remedy = found.st_uid == geteuid()
                                 ? "to regain access: chmod u+rwX " + place.string()
                                 : "run gradmonctl as " + owner + ", or ask " + owner + " for access";
  return path.string() + ": permission denied to " + name_and_number(geteuid()) + ": " +
         (there ? "it" : place.string()) + " belongs to " + name_and_number(found.st_uid) + " and has mode " +
         mode.data() + ": " + remedy;
}

}  // namespace gradmon
