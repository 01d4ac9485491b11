// SPDX-License-Identifier: Apache-2.0
// The CURVE keys of a job's TCP endpoint. They are files in one directory, made by `gradmonctl keygen DIR`
// (make_key_directory()). Only the path of the directory is passed on: GRADMON_KEYS=DIR in the environment of
// the job, --keys DIR to gradmonctl.
//
//   server.secret  server.public   the job's own key pair; only rank 0's host needs the secret
//   ranks.secret                   the key of the hubs on other hosts
//   operator.secret                the key of gradmonctl
//   NAME.secret                    the key of another client, made by `keygen DIR --client NAME`
//   clients.allow                  who may connect; for rank 0's host
//
// Ranks on several hosts all get GRADMON_KEYS=DIR. DIR is on a shared file system, or each host has a copy
// of it. A host without rank 0 needs only server.public and ranks.secret. A client elsewhere needs a
// directory with server.public and its own NAME.secret.
//
// A secret must be a regular file that belongs to this user or root and that others cannot read. The
// directory and its other files must not be writable by others. Every error names the file and the remedy,
// and never contains a key. These functions do file I/O: do not call them on the agent thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "control/aliases.h"

namespace gradmon {

using KeyBytes = std::array<unsigned char, 32>;

// The role of a key in clients.allow.
// read: may ask for status, history, verdicts and the config in force.
// control: may send every command, and may be a rank or a hub that speaks for ranks.
enum class Role : std::uint8_t { read, control };

const char* name_of(Role role);

struct Client {
  std::string name;
  Role role = Role::read;
};
using AllowList = std::map<KeyBytes, Client>;  // by public key

// Returns "" or the reason why the client name is invalid. The name is also a file name: letters, digits,
// "_", "-" and ".", at most 64 characters, not "." or "-" in front, and not "server".
std::string name_objection(std::string_view name);

// Reads one client per line, "NAME ROLE PUBLICKEY". Skips empty lines and lines that begin with "#". Requires
// at least one client; names and keys must be unique. The error begins with "FILE:LINE:COLUMN: " (columns in
// bytes, from 1), or with "FILE: " without a client, and never contains a key.
Result<AllowList> parse_allow_list(std::string_view text, const std::string& file);

// The client's line in clients.allow, with its line feed.
std::string allow_list_line(const Client& client, const KeyBytes& public_key);

// Keys as text: Z85 (ZeroMQ's RFC 32), 40 characters for 32 bytes. The alphabet contains "#", so a key file
// cannot have comments. Pure; any thread.
inline constexpr std::size_t kKeyText = 40;

// The text is as secret as the key. It has capacity for a line feed, so that adding one makes no copy.
std::string to_z85(const KeyBytes& key);

// Decodes `text`, of kKeyText characters, into `key`. Returns nullopt on success, else the index of the wrong
// character: the first that is not Z85, or the first of five characters whose value exceeds 32 bits.
std::optional<std::size_t> from_z85(std::string_view text, KeyBytes& key);

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
Result<ServerKeys> read_server_keys(const fs::path& directory);
// clients.allow, polled for changes, for rank 0.
class AllowListFile {
 public:
  explicit AllowListFile(fs::path key_directory) : directory_(std::move(key_directory)) {}

  // Returns the list or the error; nullopt if the file has not changed since the last call.
  std::optional<Result<AllowList>> look();

 private:
  const fs::path directory_;
  std::optional<Result<std::string>> last_;
};

// server.public and ranks.secret, for the other ranks.
Result<ClientKeys> read_rank_keys(const fs::path& directory);
// server.public and operator.secret, for gradmonctl. Without operator.secret: the secret of the only client
// other than "ranks".
Result<ClientKeys> read_operator_keys(const fs::path& directory);

// owner_only: others can neither read nor write the key file. owner_writes: others can only read it.
enum class KeyAccess { owner_only, owner_writes };

// Returns "" or the reason to distrust this directory: it is missing, is not a directory, belongs to another
// user, or is writable by others.
std::string key_directory_objection(const fs::path& directory);

// Reads a regular file of at most 1 MiB that belongs to this user or root and allows others no more than
// `access`. Never blocks (a FIFO is refused). The returned string is the only copy of a secret; the caller
// wipes it.
Result<std::string> read_key_file(const fs::path& file, KeyAccess access);

// The key pair that a hub makes for itself, with its endpoint and the keys it admits. Saved in the job's
// directory (0700), so that a restarted hub keeps its identity. The file has one line each for the secret,
// the endpoint or "-", and every admitted key.
struct HubKeys {
  SecretKey secret;
  std::string endpoint;         // lead hub only: its last address; "": never listened
  std::set<KeyBytes> admitted;  // lead hub only: public keys of the other hosts' hubs
};

// Reads the file. If it is missing, invalid or not trusted: generates new keys, which are not saved yet.
Result<HubKeys> hub_keys_in(const fs::path& file);
// Replaces the file by rename; mode 0600.
Result<void> save_hub_keys(const fs::path& file, const HubKeys& keys);

// make_key_directory() and add_client() make the files. They never overwrite a key. All files are synced to
// disk before they return. The returned text is a message for the user and contains no key.

// Makes a key directory (0700) and its missing parents; uses an existing empty directory. The directory gets
// the job's key pair and the clients "ranks" and "operator", both with the role control. Secrets have mode
// 0600, the other files 0644.
Result<std::string> make_key_directory(const fs::path& directory);

// Adds a client: makes NAME.secret and adds a line to clients.allow.
Result<std::string> add_client(const fs::path& directory, const Client& client);

}  // namespace gradmon
