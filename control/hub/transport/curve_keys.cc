// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/curve_keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "control/files/descriptor.h"
#include "control/files/file_access.h"

namespace gradmon {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kAlphabet =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
constexpr std::uint64_t kBase = 85;
constexpr std::size_t kBytes = 4;
constexpr std::size_t kCharacters = 5;

struct Word {
  std::size_t column;  // from 1
  std::string_view text;
};

std::vector<Word> split_words(std::string_view line) {
  std::vector<Word> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(kBlanks, at)) != line.npos) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back({at + 1, line.substr(at, end - at)});
    at = end;
  }
  return words;
}

class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  // Returns "" or the error.
  std::string take(std::string_view line) {
    line_ += 1;
    const std::vector<Word> words = split_words(line);
    if (words.empty() || words.front().text.front() == '#') return "";
    if (words.size() != 3) {
      const std::size_t column = words.size() > 3 ? words[3].column : line.size() + 1;
      return at(column) + "expected NAME ROLE PUBLICKEY, got " + std::to_string(words.size()) +
             (words.size() == 1 ? " word" : " words");
    }
    Client client;
    client.name = words[0].text;
    if (std::string why = name_objection(client.name); !why.empty()) return at(words[0].column) + why;
    if (words[1].text != name_of(Role::read) && words[1].text != name_of(Role::control))
      return at(words[1].column) + "expected the role read or control";
    client.role = words[1].text == name_of(Role::control) ? Role::control : Role::read;
    return take(std::move(client), words);
  }

  AllowList list() && { return std::move(list_); }

 private:
  std::string take(Client client, const std::vector<Word>& words) {
    const Word& word = words[2];
    if (word.text.size() != kKeyText) {
      return at(word.column) + "expected a public key of 40 characters, got " +
             std::to_string(word.text.size());
    }
    KeyBytes key{};
    if (const auto wrong = from_z85(word.text, key)) return at(word.column + *wrong) + "not Z85";
    if (const auto [first, fresh] = lines_.emplace(client.name, line_); !fresh) {
      return at(words[0].column) + "client \"" + client.name + "\" is in line " +
             std::to_string(first->second) + " already";
    }
    if (const auto [first, fresh] = list_.emplace(key, client); !fresh)
      return at(word.column) + "this key is client \"" + first->second.name + "\" already";
    return "";
  }
  std::string at(std::size_t column) const {
    return file_ + ":" + std::to_string(line_) + ":" + std::to_string(column) + ": ";
  }

  const std::string file_;
  std::size_t line_ = 0;
  std::map<std::string, std::size_t> lines_;  // by name
  AllowList list_;
};

constexpr std::size_t kLargest = std::size_t{1} << 20U;
constexpr mode_t kOthersRead = 0077;
constexpr mode_t kOthersWrite = 0022;

std::string owner_objection(const fs::path& path, const struct stat& status) {
  if (status.st_uid == geteuid() || status.st_uid == 0) return "";
  return path.string() + ": belongs to uid " + std::to_string(status.st_uid) + ", not to uid " +
         std::to_string(geteuid()) + " who runs this";
}

std::string file_objection(const fs::path& file, const struct stat& status, KeyAccess access) {
  if (!S_ISREG(status.st_mode)) return file.string() + ": not a regular file";
  if (std::string why = owner_objection(file, status); !why.empty()) return why;
  if (access == KeyAccess::owner_only && (status.st_mode & kOthersRead) != 0)
    return file.string() + ": others can use it (mode " + mode_text(status.st_mode) + "): chmod 600 it";
  if ((status.st_mode & kOthersWrite) != 0)
    return file.string() + ": others can write it (mode " + mode_text(status.st_mode) + "): chmod go-w it";
  if (static_cast<std::size_t>(status.st_size) > kLargest) return file.string() + ": larger than 1 MiB";
  return "";
}

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

const char* name_of(Role role) { return role == Role::control ? "control" : "read"; }

std::string name_objection(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (name.empty() || name.size() > kLongestName || !plain || name.front() == '.' || name.front() == '-') {
    return "expected a client's name: letters, digits, \"_\", \"-\" and \".\", at most " +
           std::to_string(kLongestName) + ", neither \".\" nor \"-\" in front";
  }
  return name == "server" ? "\"server\" is the job itself, not a client" : "";
}

Result<AllowList> parse_allow_list(std::string_view text, const std::string& file) {
  Parser parser(file);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (std::string why = parser.take(text.substr(at, end - at)); !why.empty())
      return tl::unexpected(std::move(why));
    at = end + 1;
  }
  AllowList list = std::move(parser).list();
  if (list.empty()) return tl::unexpected(file + ": lists no client: nobody could connect");
  return list;
}

std::string allow_list_line(const Client& client, const KeyBytes& public_key) {
  return client.name + " " + name_of(client.role) + " " + to_z85(public_key) + "\n";
}

std::string to_z85(const KeyBytes& key) {
  std::string text;
  text.reserve(kKeyText + 1);
  text.resize(kKeyText);
  for (std::size_t group = 0; group < key.size() / kBytes; ++group) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kBytes; ++i) value = value << 8U | key[group * kBytes + i];
    for (std::size_t i = kCharacters; i-- > 0; value /= kBase)
      text[group * kCharacters + i] = kAlphabet[value % kBase];
  }
  return text;
}

std::optional<std::size_t> from_z85(std::string_view text, KeyBytes& key) {
  for (std::size_t group = 0; group < key.size() / kBytes; ++group) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kCharacters; ++i) {
      const std::size_t place = group * kCharacters + i;
      const std::size_t digit = place < text.size() ? kAlphabet.find(text[place]) : kAlphabet.npos;
      if (digit == kAlphabet.npos) return place;
      value = value * kBase + digit;
    }
    if (value > UINT32_MAX) return group * kCharacters;
    for (std::size_t i = kBytes; i-- > 0; value >>= 8U)
      key[group * kBytes + i] = static_cast<unsigned char>(value & 0xFFU);
  }
  return {};
}

namespace {

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

Result<KeyBytes> read_key(const fs::path& file, KeyAccess access) {
  auto text = read_key_file(file, access);
  if (!text) return tl::unexpected(text.error());
  KeyBytes key{};
  std::string why = key_objection(file.string(), *text, key);
  sodium_memzero(text->data(), text->size());
  Result<KeyBytes> read(key);
  if (!why.empty()) read = tl::unexpected(std::move(why));
  sodium_memzero(key.data(), key.size());
  return read;
}

Result<SecretKey> read_secret(const fs::path& file) {
  auto key = read_key(file, KeyAccess::owner_only);
  if (!key) return tl::unexpected(key.error());
  SecretKey secret(*key);
  sodium_memzero(key->data(), key->size());
  return secret;
}

Result<ClientKeys> read_client_keys(const fs::path& directory, const std::string& name) {
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  auto server = read_key(directory / "server.public", KeyAccess::owner_writes);
  if (!server) return tl::unexpected(server.error());
  auto secret = read_secret(directory / (name + std::string(kSecret)));
  if (!secret) return tl::unexpected(secret.error());
  return ClientKeys{std::move(*secret), *server};
}

fs::path allow_list_path(const fs::path& directory) { return directory / "clients.allow"; }

Result<std::string> allow_list_text(const fs::path& directory) {
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  return read_key_file(allow_list_path(directory), KeyAccess::owner_writes);
}

Result<AllowList> parsed(const fs::path& directory, const Result<std::string>& text) {
  if (!text) return tl::unexpected(text.error());
  return parse_allow_list(*text, allow_list_path(directory).string());
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

Result<ServerKeys> read_server_keys(const fs::path& directory) {
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  auto secret = read_secret(directory / "server.secret");
  if (!secret) return tl::unexpected(secret.error());
  auto clients = parsed(directory, allow_list_text(directory));
  if (!clients) return tl::unexpected(clients.error());
  return ServerKeys{std::move(*secret), std::move(*clients)};
}

std::optional<Result<AllowList>> AllowListFile::look() {
  auto text = allow_list_text(directory_);
  if (last_ && *last_ == text) return {};
  last_ = text;
  return parsed(directory_, text);
}

Result<ClientKeys> read_rank_keys(const fs::path& directory) { return read_client_keys(directory, "ranks"); }

Result<ClientKeys> read_operator_keys(const fs::path& directory) {
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

std::string key_directory_objection(const fs::path& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) {
    const bool missing = errno == ENOENT;
    return path_error(directory, errno).value() +
           (missing ? "; \"gradmonctl keygen " + directory.string() + "\" makes a directory of keys" : "");
  }
  if (!S_ISDIR(status.st_mode)) return directory.string() + ": not a directory";
  if (std::string why = owner_objection(directory, status); !why.empty()) return why;
  if ((status.st_mode & kOthersWrite) != 0)
    return directory.string() + ": others can write it (mode " + mode_text(status.st_mode) +
           "): chmod 700 it";
  return "";
}

Result<std::string> read_key_file(const fs::path& file, KeyAccess access) {
  return read_checked_file(file, 0,
                           [&](const struct stat& status) { return file_objection(file, status, access); });
}

Result<HubKeys> hub_keys_in(const fs::path& file) {
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

Result<void> save_hub_keys(const fs::path& file, const HubKeys& keys) {
  std::string text =
      to_z85(keys.secret.bytes()) + "\n" + (keys.endpoint.empty() ? "-" : keys.endpoint) + "\n";
  for (const KeyBytes& key : keys.admitted) text += to_z85(key) + "\n";
  auto replaced = replace_file(file, text, 0600);
  sodium_memzero(text.data(), text.size());
  return replaced;
}

namespace {

using Outcome = Result<void>;

constexpr mode_t kSecretMode = 0600;
constexpr mode_t kPublicMode = 0644;
constexpr char kListTitle[] = "# Who may connect: NAME ROLE PUBLICKEY, ROLE being read or control.\n";

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
  const Descriptor opened(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  const int fd = opened.get();
  if (!opened.valid()) return path_error(file, errno);
  const bool written = fchmod(fd, mode) == 0 && write_all(fd, text) && fsync(fd) == 0;
  const int cause = errno;
  made.paths.push_back(file);
  if (written) return {};
  return path_error(file, cause);
}

// Makes NAME.secret; returns the public key.
Result<KeyBytes> make_pair(const fs::path& directory, const std::string& name, Made& made) {
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
  if (errno != EEXIST) return path_error(directory, errno);
  struct stat status {};
  if (lstat(directory.c_str(), &status) != 0) return path_error(directory, errno);
  if (!S_ISDIR(status.st_mode)) return tl::unexpected(directory.string() + ": not a directory");
  if (status.st_uid != geteuid() || (status.st_mode & 0077U) != 0)
    return tl::unexpected(directory.string() + ": others can use it: give a new directory, or chmod 700 it");
  if (!fs::is_empty(directory, error) || error)
    return tl::unexpected(directory.string() + ": not empty; nothing was changed");
  return {};
}

}  // namespace

Result<std::string> make_key_directory(const fs::path& directory) {
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
       {std::pair<std::string, std::string>("server.public", to_z85(*server) + "\n"),
        {allow_list_path(directory).filename().string(), list}}) {
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

Result<std::string> add_client(const fs::path& directory, const Client& client) {
  if (sodium_init() < 0) return tl::unexpected(std::string("libsodium has no random numbers here"));
  if (std::string why = name_objection(client.name); !why.empty())
    return tl::unexpected("\"" + client.name + "\": " + why);
  if (std::string why = key_directory_objection(directory); !why.empty()) return tl::unexpected(why);
  const fs::path file = allow_list_path(directory);
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
