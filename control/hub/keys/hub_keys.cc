// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/hub_keys.h"

#include <sodium.h>

#include <optional>
#include <string_view>
#include <utility>

#include "control/files/durable_file.h"
#include "control/hub/keys/key_file.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::optional<HubKeys> parse(std::string_view text) {
  HubKeys keys;
  for (int line = 0; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return {};
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == 1) {
      keys.endpoint = word == "-" ? "" : std::string(word);
      continue;
    }
    KeyBytes key{};
    if (word.size() != kKeyText || from_z85(word, key)) return {};
    if (line == 0) {
      keys.secret = SecretKey(key);
      sodium_memzero(key.data(), key.size());
    } else {
      keys.admitted.insert(key);
    }
  }
  if (keys.secret.bytes() == KeyBytes{}) return {};
  return keys;
}

}  // namespace

tl::expected<HubKeys, std::string> hub_keys_in(const fs::path& file) {
  if (sodium_init() < 0) return tl::unexpected(std::string("libsodium has no random numbers here"));
  if (auto text = read_key_file(file, KeyAccess::owner_only)) {
    auto kept = parse(*text);
    sodium_memzero(text->data(), text->size());
    if (kept) return std::move(*kept);
  }
  HubKeys keys;
  KeyBytes bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  keys.secret = SecretKey(bytes);
  sodium_memzero(bytes.data(), bytes.size());
  return keys;
}

tl::expected<void, std::string> save_hub_keys(const fs::path& file, const HubKeys& keys) {
  std::string text =
      to_z85(keys.secret.bytes()) + "\n" + (keys.endpoint.empty() ? "-" : keys.endpoint) + "\n";
  for (const KeyBytes& key : keys.admitted) text += to_z85(key) + "\n";
  auto replaced = replace_file(file, text, 0600);
  sodium_memzero(text.data(), text.size());
  return replaced;
}

}  // namespace gradmon
