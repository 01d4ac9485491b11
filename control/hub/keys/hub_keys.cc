// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/hub_keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "control/files/descriptor.h"
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
  if (auto text = read_key_file(file, Guarded::against_reading)) {
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

tl::expected<void, std::string> keep_hub_keys(const fs::path& file, const HubKeys& keys) {
  std::string text = to_z85(keys.secret.bytes()) + "\n" + (keys.endpoint.empty() ? "-" : keys.endpoint) + "\n";
  for (const KeyBytes& key : keys.admitted) text += to_z85(key) + "\n";
  const fs::path beside = file.string() + ".new";
  unlink(beside.c_str());  // Left by a hub that was killed.
  const Descriptor fd(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool whole = fd.valid() && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  sodium_memzero(text.data(), text.size());
  if (whole && rename(beside.c_str(), file.c_str()) == 0) return {};
  std::string why = file.string() + ": " + std::strerror(errno);
  unlink(beside.c_str());
  return tl::unexpected(std::move(why));
}

}  // namespace gradmon
