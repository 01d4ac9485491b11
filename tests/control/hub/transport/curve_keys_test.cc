// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/curve_keys.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

const std::string kKey = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
const std::string kOther = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6";

std::string why(const std::string& text) {
  const auto list = parse_allow_list(text, "clients.allow");
  return list ? "" : list.error();
}

TEST_CASE("a key is unchanged after encoding and decoding") {
  KeyBytes key{};
  REQUIRE_FALSE(from_z85(kKey, key));
  REQUIRE(to_z85(key) == kKey);
  // The example of ZeroMQ's RFC 32.
  KeyBytes hello{};
  REQUIRE_FALSE(from_z85("HelloWorldHelloWorldHelloWorldHelloWorld", hello));
  REQUIRE(std::string(hello.begin(), hello.begin() + 8) == "\x86\x4F\xD2\x6F\xB5\x59\xF7\x5B");
  REQUIRE(from_z85(std::string(40, '~'), key) == 0U);
  REQUIRE(from_z85(kKey.substr(0, 7) + " " + kKey.substr(8), key) == 7U);
  REQUIRE(from_z85(kKey.substr(0, 35) + "#####", key) == 35U);  // over 2^32 - 1
  REQUIRE(from_z85(kKey.substr(0, 39), key) == 39U);
}

TEST_CASE("an allow-list gives the name and the role of each key") {
  const auto list = parse_allow_list(
      "# title\n\nalice read " + kKey + "\r\n\t bob_2\tcontrol " + kOther + "  \n", "clients.allow");
  REQUIRE(list);
  REQUIRE(list->size() == 2);
  KeyBytes key{};
  REQUIRE_FALSE(from_z85(kKey, key));
  REQUIRE(list->at(key).name == "alice");
  REQUIRE(list->at(key).role == Role::read);
  REQUIRE_FALSE(from_z85(kOther, key));
  REQUIRE(list->at(key).name == "bob_2");
  REQUIRE(list->at(key).role == Role::control);
  REQUIRE(allow_list_line({"bob", Role::control}, key) == "bob control " + kOther + "\n");
}

TEST_CASE("an invalid allow-list is refused with the position of the error and without any key") {
  REQUIRE(why("") == "clients.allow: lists no client: nobody could connect");
  REQUIRE(why("# nobody\n\n") == "clients.allow: lists no client: nobody could connect");
  REQUIRE(why("alice read") == "clients.allow:1:11: expected NAME ROLE PUBLICKEY, got 2 words");
  REQUIRE(why("\nalice") == "clients.allow:2:6: expected NAME ROLE PUBLICKEY, got 1 word");
  REQUIRE(why("a read " + kKey + " x") == "clients.allow:1:49: expected NAME ROLE PUBLICKEY, got 4 words");
  REQUIRE(why("a write " + kKey) == "clients.allow:1:3: expected the role read or control");
  REQUIRE(why("a read " + kKey + "x") == "clients.allow:1:8: expected a public key of 40 characters, got 41");
  REQUIRE(why("a read " + kKey.substr(0, 39) + "~") == "clients.allow:1:47: not Z85");
  REQUIRE(why("a read " + kKey + "\na control " + kOther) ==
          "clients.allow:2:1: client \"a\" is in line 1 already");
  REQUIRE(why("a read " + kKey + "\n b control " + kKey) ==
          "clients.allow:2:12: this key is client \"a\" already");
  REQUIRE(why("server read " + kKey) == "clients.allow:1:1: \"server\" is the job itself, not a client");
  for (const char* name : {"../x", ".x", "-x", "a/b", "a\x1b", "\xc3\xa4"}) {
    CAPTURE(name);
    REQUIRE(why(std::string(name) + " read " + kKey).find("1:1: expected a client's name: letters") !=
            std::string::npos);
  }
  REQUIRE(name_objection(std::string(64, 'x')).empty());
  REQUIRE_FALSE(name_objection(std::string(65, 'x')).empty());
  REQUIRE_FALSE(name_objection("").empty());
  REQUIRE(why(std::string("a read ") + std::string(40, '\0')) == "clients.allow:1:8: not Z85");
}

struct Keys {
  TemporaryDirectory scratch;
  fs::path directory = scratch / "keys";
  std::string message = *make_key_directory(directory);

  fs::path operator/(const std::string& name) const { return directory / name; }
  std::string server_error() const {
    const auto keys = read_server_keys(directory);
    return keys ? "" : keys.error();
  }
};

std::string without(std::string text, const std::string& what) {
  for (std::size_t at = 0; (at = text.find(what)) != text.npos;) text.replace(at, what.size(), "KEYS");
  return text;
}

TEST_CASE("keygen makes the keys of rank 0 and of the ranks and of gradmonctl") {
  const Keys keys;
  const auto server = read_server_keys(keys.directory);
  REQUIRE(server);
  REQUIRE(server->clients.size() == 2);
  const auto ranks = read_rank_keys(keys.directory);
  REQUIRE(ranks);
  REQUIRE(ranks->server_public == server->secret.public_key());
  REQUIRE(server->clients.at(ranks->secret.public_key()).name == "ranks");
  REQUIRE(server->clients.at(ranks->secret.public_key()).role == Role::control);
  const auto gradmonctl = read_operator_keys(keys.directory);
  REQUIRE(gradmonctl);
  REQUIRE(server->clients.at(gradmonctl->secret.public_key()).name == "operator");
}

TEST_CASE("keygen lists the files that it made and prints no key") {
  const Keys keys;
  REQUIRE(without(keys.message, keys.directory.string()) ==
          "made KEYS\n"
          "  server.secret    the job's own key, for rank 0\n"
          "  server.public    what its clients know it by\n"
          "  ranks.secret     the other ranks' key (control)\n"
          "  operator.secret  gradmonctl's key (control)\n"
          "  clients.allow    who may connect\n"
          "start the job with GRADMON_KEYS=KEYS; ask it with gradmonctl --keys KEYS\n");
  const auto added = add_client(keys.directory, {"alice", Role::read});
  REQUIRE(added);
  REQUIRE(without(*added, keys.directory.string()) ==
          "made KEYS/alice.secret\n"
          "KEYS/clients.allow lists alice with the role read; running jobs read it within 2 s\n"
          "a client elsewhere needs a directory with alice.secret and server.public\n");
}

TEST_CASE("a key directory may be named with a trailing slash") {
  TemporaryDirectory scratch;
  const auto made = make_key_directory(scratch / "new/keys/");
  CAPTURE(made ? "" : made.error());
  REQUIRE(made);
  REQUIRE((mode_of(scratch / "new/keys") & 0077U) == 0U);
}

TEST_CASE("only the owner can read secrets whatever the umask") {
  for (const mode_t mask : {0000U, 0022U, 0777U}) {
    const mode_t before = umask(mask);
    TemporaryDirectory scratch;
    const auto made = make_key_directory(scratch / "keys");
    umask(before);
    CAPTURE(mask, made ? "" : made.error());
    if (mask == 0777U && !made) continue;  // With this umask not even the owner can use the directory.
    REQUIRE(made);
    const fs::path keys = scratch / "keys";
    for (const char* secret : {"server.secret", "ranks.secret", "operator.secret"})
      REQUIRE(mode_of(keys / secret) == 0600U);
    for (const char* open_to_all : {"server.public", "clients.allow"})
      REQUIRE(mode_of(keys / open_to_all) == 0644U);
    REQUIRE((mode_of(keys) & 0077U) == 0U);
  }
}

TEST_CASE("keygen changes no existing file") {
  const Keys keys;
  REQUIRE(add_client(keys.directory, {"alice", Role::read}));
  const auto all = [&] {
    std::string text;
    for (const auto& file : fs::directory_iterator(keys.directory))
      text += file.path().filename().string() + read_text(file.path());
    return text;
  };
  const std::string before = all();
  REQUIRE(without(make_key_directory(keys.directory).error(), keys.directory.string()) ==
          "KEYS: not empty; nothing was changed");
  REQUIRE(without(add_client(keys.directory, {"alice", Role::control}).error(), keys.directory.string()) ==
          "KEYS/clients.allow: lists client \"alice\" already; nothing was changed");
  write_text(keys / "bob.secret", "mine");
  REQUIRE(without(add_client(keys.directory, {"bob", Role::read}).error(), keys.directory.string()) ==
          "KEYS/bob.secret: File exists");
  REQUIRE(read_text(keys / "bob.secret") == "mine");
  fs::remove(keys / "bob.secret");
  REQUIRE_FALSE(add_client(keys.directory, {"../x", Role::read}));
  REQUIRE_FALSE(add_client(keys.directory, {"server", Role::read}));
  REQUIRE(all() == before);
  REQUIRE(without(make_key_directory(keys / "server.public").error(), keys.directory.string()) ==
          "KEYS/server.public: not a directory");
}

std::size_t files_in(const fs::path& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST_CASE("a keygen that fails midway leaves nothing and can be repeated") {
  const TemporaryDirectory scratch;
  const fs::path keys = scratch / "keys";
  for (const bool exists : {false, true}) {
    fs::remove_all(keys);
    if (exists) REQUIRE(mkdir(keys.c_str(), 0700) == 0);
    {
      const FileSizeLimit full(50);  // enough for each key, but not for the list of clients
      REQUIRE_FALSE(make_key_directory(keys));
    }
    REQUIRE(fs::exists(keys) == exists);
    if (exists) REQUIRE(fs::is_empty(keys));
    REQUIRE(make_key_directory(keys));
  }
}

TEST_CASE("a client that cannot be listed leaves no secret and no other file") {
  const Keys keys;
  const std::string before = read_text(keys / "clients.allow");
  const std::size_t files = files_in(keys.directory);
  {
    const FileSizeLimit full(50);
    REQUIRE_FALSE(add_client(keys.directory, {"alice", Role::read}));
  }
  REQUIRE(read_text(keys / "clients.allow") == before);
  REQUIRE(files_in(keys.directory) == files);
  REQUIRE(add_client(keys.directory, {"alice", Role::read}));
}

TEST_CASE("a listed client keeps its secret if the directory cannot be synced") {
  const Keys keys;
  if (geteuid() == 0) {
    for (const char* name : {"", "clients.allow"}) REQUIRE(chown((keys / name).c_str(), 65534, 65534) == 0);
    REQUIRE(chmod(keys.scratch.path().c_str(), 0755) == 0);
    REQUIRE(seteuid(65534) == 0);
  }
  chmod(keys.directory.c_str(), 0300);  // The directory cannot be opened, so it cannot be synced.
  const auto added = add_client(keys.directory, {"alice", Role::read});
  chmod(keys.directory.c_str(), 0700);
  const bool has_secret = fs::exists(keys / "alice.secret");
  const std::string list = read_text(keys / "clients.allow");
  if (getuid() == 0) REQUIRE(seteuid(0) == 0);
  REQUIRE_FALSE(added);
  CHECK(added.error().find("was added, but a crash") != std::string::npos);
  CHECK(has_secret);
  CHECK(list.find("alice read ") != std::string::npos);
}

TEST_CASE("a key directory that is missing or unsafe is refused with the remedy") {
  const Keys keys;
  const auto why = [&] { return without(keys.server_error(), keys.directory.string()); };
  REQUIRE(why().empty());
  chmod(keys.directory.c_str(), 0777);
  REQUIRE(why() == "KEYS: others can write it (mode 0777): chmod 700 it");
  chmod(keys.directory.c_str(), 0755);
  REQUIRE(why().empty());
  fs::rename(keys.directory, keys.scratch / "away");
  REQUIRE(why() == "KEYS: No such file or directory; \"gradmonctl keygen KEYS\" makes a directory of keys");
  write_text(keys.directory, "");
  REQUIRE(why() == "KEYS: not a directory");
}

TEST_CASE("a key file that is missing or can be read by others or is not Z85 is refused") {
  const Keys keys;
  const fs::path secret = keys / "server.secret";
  const std::string good = read_text(secret);
  const auto rewrite = [&](const std::string& text) {
    write_text(secret, text);
    chmod(secret.c_str(), 0600);
  };
  const auto why = [&] { return without(keys.server_error(), keys.directory.string()); };
  for (const auto& [mode, text] :
       {std::pair<mode_t, const char*>(0640, "0640"), {0604, "0604"}, {0610, "0610"}}) {
    chmod(secret.c_str(), mode);
    REQUIRE(why() == "KEYS/server.secret: others can use it (mode " + std::string(text) + "): chmod 600 it");
  }
  chmod(secret.c_str(), 0600);
  chmod((keys / "clients.allow").c_str(), 0664);
  REQUIRE(why() == "KEYS/clients.allow: others can write it (mode 0664): chmod go-w it");
  chmod((keys / "clients.allow").c_str(), 0644);
  rewrite(good.substr(0, 39) + "\n");
  REQUIRE(why() == "KEYS/server.secret:1:1: expected one line, a key of 40 characters (Z85), got 39 bytes");
  rewrite(good.substr(0, 20) + "~" + good.substr(21));
  REQUIRE(why() == "KEYS/server.secret:1:21: not Z85");
  rewrite("");
  REQUIRE(why() == "KEYS/server.secret:1:1: expected one line, a key of 40 characters (Z85), got 0 bytes");
  rewrite(std::string((1U << 20U) + 1, 'x'));
  REQUIRE(why() == "KEYS/server.secret: larger than 1 MiB");
  fs::remove(secret);
  REQUIRE(why() == "KEYS/server.secret: No such file or directory");
  REQUIRE(mkfifo(secret.c_str(), 0600) == 0);
  REQUIRE(why() == "KEYS/server.secret: not a regular file");
  fs::remove(secret);
  fs::create_directory(secret);
  REQUIRE(why() == "KEYS/server.secret: not a regular file");
  fs::remove(secret);
  fs::create_symlink("loop", keys / "loop");
  fs::create_symlink("loop", secret);
  REQUIRE(why() == "KEYS/server.secret: Too many levels of symbolic links");
  fs::remove(secret);
  write_text(keys / "real", good.substr(0, 40));  // A link, as Kubernetes has it, and no line feed.
  chmod((keys / "real").c_str(), 0400);
  fs::create_symlink("real", secret);
  REQUIRE(why().empty());
  write_text(keys / "clients.allow", "# nobody\n");
  REQUIRE(why() == "KEYS/clients.allow: lists no client: nobody could connect");
  fs::remove(keys / "clients.allow");
  REQUIRE(why() == "KEYS/clients.allow: No such file or directory");
}

TEST_CASE("a key file of another user is refused") {
  if (!is_root("change the owner of a file")) return;
  const Keys keys;
  REQUIRE(chown((keys / "server.secret").c_str(), 65534, 65534) == 0);
  REQUIRE(without(keys.server_error(), keys.directory.string()) ==
          "KEYS/server.secret: belongs to uid 65534, not to uid 0 who runs this");
}

TEST_CASE("gradmonctl uses operator.secret or else the only client's secret") {
  const Keys keys;
  REQUIRE(add_client(keys.directory, {"alice", Role::read}));
  const auto server = read_server_keys(keys.directory);
  KeyBytes alice{};
  for (const auto& [key, client] : server->clients) {
    if (client.name == "alice") alice = key;
  }
  REQUIRE_FALSE(read_operator_keys(keys.directory)->secret.public_key() == alice);
  fs::remove(keys / "operator.secret");
  REQUIRE(read_operator_keys(keys.directory)->secret.public_key() == alice);
  REQUIRE(add_client(keys.directory, {"bob", Role::read}));
  REQUIRE(without(read_operator_keys(keys.directory).error(), keys.directory.string()) ==
          "KEYS: several clients' secrets (alice, bob) and no operator.secret: leave one");
  fs::remove(keys / "alice.secret");
  fs::remove(keys / "bob.secret");
  REQUIRE(read_operator_keys(keys.directory).error().find("contains no client secret") != std::string::npos);
}

TEST_CASE("a secret that is destroyed or moved is wiped from memory") {
  alignas(SecretKey) std::array<unsigned char, sizeof(SecretKey)> place{};
  KeyBytes bytes{};
  bytes.fill(0x5a);
  auto* secret = new (place.data()) SecretKey(bytes);
  REQUIRE(place[0] == 0x5a);
  SECTION("destroyed") {
    secret->~SecretKey();
    CHECK(place == decltype(place){});
  }
  SECTION("moved") {
    const SecretKey moved(std::move(*secret));
    CHECK(moved.bytes() == bytes);
    CHECK(place == decltype(place){});
    secret->~SecretKey();
  }
}

TEST_CASE("a hub's own keys are saved for the next hub and only the owner can read them") {
  const TemporaryDirectory directory;
  const auto file = directory / "keys";
  auto made = hub_keys_in(file);
  REQUIRE(made);
  CHECK(made->endpoint.empty());
  made->endpoint = "tcp://10.0.0.1:5";
  made->admitted = {hub_keys_in(file)->secret.public_key(), hub_keys_in(file)->secret.public_key()};
  REQUIRE(made->admitted.size() == 2);
  REQUIRE(save_hub_keys(file, *made));
  CHECK(mode_of(file) == 0600);
  const auto again = hub_keys_in(file);
  CHECK(again->secret.bytes() == made->secret.bytes());
  CHECK(again->endpoint == made->endpoint);
  CHECK(again->admitted == made->admitted);
}

TEST_CASE("a key file that others can read or that is damaged is not used") {
  const TemporaryDirectory directory;
  const auto file = directory / "keys";
  const auto made = hub_keys_in(file);
  REQUIRE(save_hub_keys(file, *made));
  const std::string whole = read_text(file);
  const auto is_taken = [&] { return hub_keys_in(file)->secret.bytes() == made->secret.bytes(); };
  REQUIRE(is_taken());
  chmod(file.c_str(), 0640);
  CHECK_FALSE(is_taken());
  for (const std::string& text : {whole.substr(0, 20), whole + "x\n", whole + "x", std::string("\n\n")}) {
    write_text(file, text);
    chmod(file.c_str(), 0600);
    CHECK_FALSE(is_taken());
  }
}

}  // namespace
}  // namespace gradmon
