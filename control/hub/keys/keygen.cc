// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/keygen.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "control/files/durable_file.h"
#include "control/hub/keys/curve_keys.h"
#include "control/hub/keys/key_file.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Outcome = tl::expected<void, std::string>;

constexpr mode_t kSecretMode = 0600;
constexpr mode_t kPublicMode = 0644;
constexpr char kListName[] = "clients.allow";
constexpr char kListTitle[] = "# Who may connect: NAME ROLE PUBLICKEY, ROLE being read or control.\n";

tl::unexpected<std::string> failed(const fs::path& path) {
  return tl::unexpected(path.string() + ": " + std::strerror(errno));
}

// The files that a keygen has made so far. Removes them if the keygen does not succeed.
struct Made {
  std::vector<fs::path> paths;  // a directory before its files
  bool keep = false;

  Made() = default;
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() {
    std::error_code error;
    for (auto path = paths.rbegin(); !keep && path != paths.rend(); ++path) fs::remove(*path, error);
  }
};

Outcome write_new(const fs::path& file, mode_t mode, std::string_view text, Made& made) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return failed(file);
  const bool written = fchmod(fd, mode) == 0 && write_all(fd, text) && fsync(fd) == 0;
  const int cause = errno;
  close(fd);
  made.paths.push_back(file);
  if (written) return {};
  errno = cause;
  return failed(file);
}

// Makes NAME.secret; returns the public key.
tl::expected<KeyBytes, std::string> make_pair(const fs::path& directory, const std::string& name,
                                              Made& made) {
  KeyBytes bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  const SecretKey secret(bytes);
  std::string text = to_z85(bytes) + "\n";
  const Outcome written = write_new(directory / (name + ".secret"), kSecretMode, text, made);
  sodium_memzero(text.data(), text.size());
  sodium_memzero(bytes.data(), bytes.size());
  if (!written) return tl::unexpected(written.error());
  return secret.public_key();
}

Outcome make_directory(const fs::path& directory, Made& made) {
  std::error_code error;
  // With a slash at the end ("keys/"), parent_path() is the directory itself.
  const fs::path named = directory.has_filename() ? directory : directory.parent_path();
  fs::create_directories(named.parent_path(), error);
  if (mkdir(directory.c_str(), 0700) == 0) {
    made.paths.push_back(named);
    return {};
  }
  if (errno != EEXIST) return failed(directory);
  struct stat status {};
  if (lstat(directory.c_str(), &status) != 0) return failed(directory);
  if (!S_ISDIR(status.st_mode)) return tl::unexpected(directory.string() + ": not a directory");
  if (status.st_uid != geteuid() || (status.st_mode & 0077U) != 0)
    return tl::unexpected(directory.string() + ": others can use it: give a new directory, or chmod 700 it");
  if (!fs::is_empty(directory, error) || error)
    return tl::unexpected(directory.string() + ": not empty; nothing was changed");
  return {};
}

}  // namespace

tl::expected<std::string, std::string> make_key_directory(const fs::path& directory) {
  if (sodium_init() < 0) return tl::unexpected(std::string("libsodium has no random numbers here"));
  Made made;
  if (Outcome ready = make_directory(directory, made); !ready) return tl::unexpected(ready.error());
  std::string list = kListTitle;
  const auto server = make_pair(directory, "server", made);
  if (!server) return tl::unexpected(server.error());
  for (const char* name : {"ranks", "operator"}) {
    const auto key = make_pair(directory, name, made);
    if (!key) return tl::unexpected(key.error());
    list += allow_list_line({name, Role::control}, *key);
  }
  for (const auto& [name, text] :
       {std::pair<std::string, std::string>("server.public", to_z85(*server) + "\n"), {kListName, list}}) {
    if (Outcome written = write_new(directory / name, kPublicMode, text, made); !written)
      return tl::unexpected(written.error());
  }
  if (Outcome synced = sync_directory(directory); !synced) return tl::unexpected(synced.error());
  made.keep = true;
  const std::string path = directory.string();
  return "made " + path +
         "\n"
         "  server.secret    the job's own key, for rank 0\n"
         "  server.public    what its clients know it by\n"
         "  ranks.secret     the other ranks' key (control)\n"
         "  operator.secret  gradmonctl's key (control)\n"
         "  clients.allow    who may connect\n"
         "start the job with GRADMON_KEYS=" +
         path + "; ask it with gradmonctl --keys " + path + "\n";
}

tl::expected<std::string, std::string> add_client(const fs::path& directory, const Client& client) {
  if (sodium_init() < 0) return tl::unexpected(std::string("libsodium has no random numbers here"));
  if (std::string why = name_objection(client.name); !why.empty())
    return tl::unexpected("\"" + client.name + "\": " + why);
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  const fs::path file = directory / kListName;
  auto text = read_key_file(file, KeyAccess::owner_writes);
  if (!text) return tl::unexpected(text.error());
  // A list with only its title has no client yet. Any other list must be valid before a line is added.
  auto list = parse_allow_list(*text, file.string());
  if (!list && *text != kListTitle) return tl::unexpected(list.error());
  for (const auto& [key, listed] : list.value_or(AllowList{})) {
    if (listed.name == client.name)
      return tl::unexpected(file.string() + ": lists client \"" + client.name +
                            "\" already; nothing was changed");
  }
  Made made;
  const auto key = make_pair(directory, client.name, made);
  if (!key) return tl::unexpected(key.error());
  if (!text->empty() && text->back() != '\n') *text += '\n';
  Outcome listed = replace_file(file, *text + allow_list_line(client, *key), kPublicMode);
  if (!listed) return tl::unexpected(listed.error());
  made.keep = true;
  if (Outcome synced = sync_directory(directory); !synced) {
    return tl::unexpected(synced.error() + "; client \"" + client.name +
                          "\" was added, but a crash of this machine may lose it");
  }
  return "made " + (directory / (client.name + ".secret")).string() + "\n" + file.string() + " lists " +
         client.name + " with the role " + name_of(client.role) +
         "; running jobs read it within 2 s\n"
         "a client elsewhere needs a directory with " +
         client.name + ".secret and server.public\n";
}

}  // namespace gradmon
