// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/curve_keys.h"

#include <sodium.h>

#include <algorithm>
#include <vector>

#include "control/hub/keys/key_file.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSecret = ".secret";

std::string key_objection(const std::string& file, std::string_view text, KeyBytes& key) {
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  if (text.size() != kKeyText) {
    return file + ":1:1: expected one line, a key of 40 characters (Z85), got " +
           std::to_string(text.size()) + " bytes";
  }
  const auto wrong = from_z85(text, key);
  return wrong ? file + ":1:" + std::to_string(*wrong + 1) + ": not Z85" : "";
}

tl::expected<KeyBytes, std::string> read_key(const fs::path& file, KeyAccess access) {
  auto text = read_key_file(file, access);
  if (!text) return tl::unexpected(text.error());
  KeyBytes key{};
  std::string why = key_objection(file.string(), *text, key);
  sodium_memzero(text->data(), text->size());
  tl::expected<KeyBytes, std::string> read(key);
  if (!why.empty()) read = tl::unexpected(std::move(why));
  sodium_memzero(key.data(), key.size());
  return read;
}

tl::expected<SecretKey, std::string> read_secret(const fs::path& file) {
  auto key = read_key(file, KeyAccess::owner_only);
  if (!key) return tl::unexpected(key.error());
  SecretKey secret(*key);
  sodium_memzero(key->data(), key->size());
  return secret;
}

tl::expected<ClientKeys, std::string> read_client_keys(const fs::path& directory, const std::string& name) {
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  auto server = read_key(directory / "server.public", KeyAccess::owner_writes);
  if (!server) return tl::unexpected(server.error());
  auto secret = read_secret(directory / (name + std::string(kSecret)));
  if (!secret) return tl::unexpected(secret.error());
  return ClientKeys{std::move(*secret), *server};
}

fs::path allow_list_of(const fs::path& directory) { return directory / "clients.allow"; }

tl::expected<std::string, std::string> allow_list_text(const fs::path& directory) {
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  return read_key_file(allow_list_of(directory), KeyAccess::owner_writes);
}

tl::expected<AllowList, std::string> parsed(const fs::path& directory,
                                            const tl::expected<std::string, std::string>& text) {
  if (!text) return tl::unexpected(text.error());
  return parse_allow_list(*text, allow_list_of(directory).string());
}

std::vector<std::string> clients_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const fs::path file = at->path().filename();
    const std::string name = file.stem().string();
    if (file.extension() == kSecret && name != "server" && name != "ranks") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

SecretKey::~SecretKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

SecretKey::SecretKey(SecretKey&& other) noexcept : bytes_(other.bytes_) {
  sodium_memzero(other.bytes_.data(), other.bytes_.size());
}

SecretKey& SecretKey::operator=(SecretKey&& other) noexcept {
  if (this == &other) return *this;
  bytes_ = other.bytes_;
  sodium_memzero(other.bytes_.data(), other.bytes_.size());
  return *this;
}

KeyBytes SecretKey::public_key() const {
  KeyBytes key{};
  crypto_scalarmult_base(key.data(), bytes_.data());
  return key;
}

tl::expected<ServerKeys, std::string> read_server_keys(const fs::path& directory) {
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  auto secret = read_secret(directory / "server.secret");
  if (!secret) return tl::unexpected(secret.error());
  auto clients = parsed(directory, allow_list_text(directory));
  if (!clients) return tl::unexpected(clients.error());
  return ServerKeys{std::move(*secret), std::move(*clients)};
}

std::optional<tl::expected<AllowList, std::string>> AllowListFile::look() {
  auto text = allow_list_text(directory_);
  if (last_ && *last_ == text) return {};
  last_ = text;
  return parsed(directory_, text);
}

tl::expected<ClientKeys, std::string> read_rank_keys(const fs::path& directory) {
  return read_client_keys(directory, "ranks");
}

tl::expected<ClientKeys, std::string> read_operator_keys(const fs::path& directory) {
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  const std::vector<std::string> names = clients_in(directory);
  if (names.empty()) {
    return tl::unexpected(directory.string() + ": contains no client secret; \"gradmonctl keygen " +
                          directory.string() + " --client NAME --role read\" makes one");
  }
  const bool has_operator = std::find(names.begin(), names.end(), "operator") != names.end();
  if (!has_operator && names.size() > 1) {
    return tl::unexpected(directory.string() + ": several clients' secrets (" + names[0] + ", " + names[1] +
                          (names.size() > 2 ? ", …" : "") + ") and no operator.secret: leave one");
  }
  return read_client_keys(directory, has_operator ? "operator" : names.front());
}

}  // namespace gradmon
