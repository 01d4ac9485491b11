// SPDX-License-Identifier: Apache-2.0
// The keys of a control endpoint on TCP. They are files in one directory that
// `gradmonctl keygen DIR` makes (keygen.h), and only the directory's path is
// ever passed on: GRADMON_KEYS=DIR in the environment of the job, --keys DIR to
// gradmonctl.
//
//   server.secret  server.public   the job's own pair; the secret is for rank 0
//   ranks.secret                   what every other rank connects with
//   operator.secret                what gradmonctl connects with
//   NAME.secret                    of one more client, by `keygen DIR --client NAME`
//   clients.allow                  who may connect (allow_list.h); for rank 0
//
// Ranks on several hosts all get GRADMON_KEYS=DIR with DIR on a file system that
// they share, or a copy of DIR on each host; a host without rank 0 needs only
// server.public and ranks.secret. A client outside needs a directory with
// server.public and its own NAME.secret.
//
// A secret must be a regular file of this user's or root's that nobody else can
// read; what is not secret must not be writable by others, nor may the
// directory. All errors name the file and the remedy, and never repeat a key.
// These functions read files: not on the agent thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "control/hub/keys/allow_list.h"
#include "control/hub/keys/z85.h"

namespace gradmon {

// Overwritten when it goes. (libzmq keeps a copy of its own while a socket uses it.)
class SecretKey {
 public:
  SecretKey() = default;
  explicit SecretKey(const KeyBytes& bytes) : bytes_(bytes) {}
  ~SecretKey();
  SecretKey(SecretKey&& other) noexcept;
  SecretKey& operator=(SecretKey&& other) noexcept;

  const KeyBytes& bytes() const { return bytes_; }
  KeyBytes public_key() const;

 private:
  KeyBytes bytes_{};
};

struct ServerKeys {
  SecretKey secret;
  AllowList clients;
};
struct ClientKeys {
  SecretKey secret;
  KeyBytes server_public{};
};

// server.secret and clients.allow, for rank 0.
tl::expected<ServerKeys, std::string> read_server_keys(const std::filesystem::path& directory);
// clients.allow, read again and again, for rank 0.
class AllowListFile {
 public:
  explicit AllowListFile(std::filesystem::path key_directory) : directory_(std::move(key_directory)) {}

  // What it says, or what is wrong with it; none where that is as at the last look.
  std::optional<tl::expected<AllowList, std::string>> look();

 private:
  const std::filesystem::path directory_;
  std::optional<tl::expected<std::string, std::string>> last_;
};

// server.public and ranks.secret, for the other ranks.
tl::expected<ClientKeys, std::string> read_rank_keys(const std::filesystem::path& directory);
// server.public and operator.secret, or else the only secret there of a client
// that is not "ranks", for gradmonctl.
tl::expected<ClientKeys, std::string> read_operator_keys(const std::filesystem::path& directory);

}  // namespace gradmon
