// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/allow_list.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

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

}  // namespace
}  // namespace gradmon
