// SPDX-License-Identifier: Apache-2.0
// The CURVE keys of a job's TCP endpoint. They are files in one directory, made by `gradmonctl keygen DIR`
// (keygen.h). Only the path of the directory is passed on: GRADMON_KEYS=DIR in the environment of the job,
// --keys DIR to gradmonctl.
//
//   server.secret  server.public   the job's own key pair; only rank 0's host needs the secret
//   ranks.secret                   the key of the hubs on other hosts
//   operator.secret                the key of gradmonctl
//   NAME.secret                    the key of another client, made by `keygen DIR --client NAME`
//   clients.allow                  who may connect (allow_list.h); for rank 0's host
//
// Ranks on several hosts all get GRADMON_KEYS=DIR. DIR is on a shared file system, or each host has a copy
// of it. A host without rank 0 needs only server.public and ranks.secret. A client elsewhere needs a
// directory with server.public and its own NAME.secret.
//
// A secret must be a regular file that belongs to this user or root and that others cannot read. The
// directory and its other files must not be writable by others. Every error names the file and the remedy,
// and never contains a key. These functions do file I/O: do not call them on the agent thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "control/hub/keys/allow_list.h"
#include "control/hub/keys/z85.h"

namespace gradmon {

// Wiped on destruction. (libzmq keeps its own copy while a socket uses the key.)
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
// clients.allow, polled for changes, for rank 0.
class AllowListFile {
 public:
  explicit AllowListFile(std::filesystem::path key_directory) : directory_(std::move(key_directory)) {}

  // Returns the list or the error; nullopt if the file has not changed since the last call.
  std::optional<tl::expected<AllowList, std::string>> look();

 private:
  const std::filesystem::path directory_;
  std::optional<tl::expected<std::string, std::string>> last_;
};

// server.public and ranks.secret, for the other ranks.
tl::expected<ClientKeys, std::string> read_rank_keys(const std::filesystem::path& directory);
// server.public and operator.secret, for gradmonctl. Without operator.secret: the secret of the only client
// other than "ranks".
tl::expected<ClientKeys, std::string> read_operator_keys(const std::filesystem::path& directory);

}  // namespace gradmon
