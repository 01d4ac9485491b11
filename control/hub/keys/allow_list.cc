// SPDX-License-Identifier: Apache-2.0
#include "control/hub/keys/allow_list.h"

#include <algorithm>
#include <vector>

namespace gradmon {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr std::string_view kBlanks = " \t\r";

struct Word {
  std::size_t column;  // from 1
  std::string_view text;
};

std::vector<Word> words_of(std::string_view line) {
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
    const std::vector<Word> words = words_of(line);
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

tl::expected<AllowList, std::string> parse_allow_list(std::string_view text, const std::string& file) {
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

}  // namespace gradmon
