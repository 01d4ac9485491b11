// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/layers.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <stdexcept>

namespace gradmon {
namespace {

using Strings = std::vector<std::string>;

bool has(const Strings& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool lies_in_any(const std::string& path, const Strings& places) {
  return std::any_of(places.begin(), places.end(), [&](const auto& place) { return lies_in(path, place); });
}

bool begins_with(const std::string& text, const std::string& beginning) {
  return text.compare(0, beginning.size(), beginning) == 0;
}

// The name in `#include <name>` or `#include "name"` with its first delimiter, or the
// macro in `#include MACRO`. Empty: the line is no include.
std::string included(const std::string& line) {
  const auto hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line[hash] != '#') return {};
  const auto word = line.find_first_not_of(" \t", hash + 1);
  if (word == std::string::npos || line.compare(word, 7, "include") != 0) return {};
  const auto begin = line.find_first_of("<\"", word);
  if (begin == std::string::npos) return line.substr(word + 7);
  const auto end = line.find_first_of(">\"", begin + 1);
  return end == std::string::npos ? std::string() : line.substr(begin, end - begin);
}

class IncludeCheck {
 public:
  IncludeCheck(const LayerTable& table, const std::string& path)
      : table_(table), path_(path), room_(innermost(path)) {}

  bool has_room() const { return !room_.empty(); }

  // The violation in a line; empty if there is none.
  std::string violation(const std::string& line) const {
    for (const auto& [place, pieces] : table_.never_written) {
      if (!lies_in(path_, place)) continue;
      for (const auto& piece : pieces) {
        if (line.find(piece) != std::string::npos) return "`" + piece + "` is not written in " + place;
      }
    }
    const std::string include = included(line);
    if (include.empty()) return {};
    if (include[0] != '"' && include[0] != '<') return "the table cannot see what" + include + " includes";
    return violation_of(include.substr(1), include[0] == '"');
  }

 private:
  std::string innermost(const std::string& path) const {
    std::string found;
    for (const auto& [folder, room] : table_.rooms) {
      if (lies_in(path, folder) && folder.size() > found.size()) found = folder;
    }
    return found;
  }

  std::string violation_of(const std::string& name, bool quoted) const {
    for (const auto& [place, names] : table_.banned) {
      if (lies_in(path_, place) && has(names, name)) return "<" + name + "> is banned in " + place;
    }
    if (has(table_.open, name)) return {};
    for (const auto& [library, beginnings] : table_.libraries) {
      for (const auto& beginning : beginnings) {
        if (begins_with(name, beginning)) return library_violation(library, name);
      }
    }
    if (const std::string theirs = innermost(name); !theirs.empty()) {
      const bool fine = theirs == room_ || lies_in_any(name, table_.rooms.at(room_).places);
      return fine ? std::string() : room_ + " may not include " + name;
    }
    if (quoted) return name + " is in no room: include paths begin at the repository root";
    const bool standard = name.find_first_of("./") == std::string::npos;
    return standard ? std::string() : "<" + name + "> is of a library that the table does not know";
  }

  std::string library_violation(const std::string& library, const std::string& name) const {
    if (!has(table_.rooms.at(room_).libraries, library)) {
      return room_ + " may not know " + library + " (<" + name + ">)";
    }
    const auto users = table_.users.find(library);
    if (users == table_.users.end() || lies_in_any(path_, users->second)) return {};
    return "<" + name + ">: " + library + " is for " + users->second.front() + " only";
  }

  const LayerTable& table_;
  const std::string& path_;
  const std::string room_;
};

bool is_cpp(const std::string& path) {
  const auto extension = std::filesystem::path(path).extension();
  return extension == ".h" || extension == ".cc" || extension == ".hpp" || extension == ".cpp";
}

Strings rest(std::istringstream& line) {
  Strings words;
  for (std::string word; line >> word;) words.push_back(word);
  return words;
}

LayerTable::Room parse_room(std::istringstream& line) {
  LayerTable::Room room;
  Strings* target = &room.places;
  for (const auto& word : rest(line)) {
    if (word == "|") {
      target = &room.libraries;
    } else {
      target->push_back(word);
    }
  }
  return room;
}

}  // namespace

LayerTable parse_layers(const std::string& text) {
  LayerTable table;
  std::istringstream lines(text);
  int number = 0;
  for (std::string whole; std::getline(lines, whole);) {
    ++number;
    std::istringstream line(whole.substr(0, whole.find('#')));
    std::string word, subject;
    if (!(line >> word)) continue;
    if (word == "open") {
      for (auto& file : rest(line)) table.open.push_back(std::move(file));
      continue;
    }
    line >> subject;
    if (word == "room") {
      table.rooms[subject] = parse_room(line);
    } else if (word == "library") {
      table.libraries[subject] = rest(line);
    } else if (word == "users") {
      table.users[subject] = rest(line);
    } else if (word == "ban") {
      table.banned[subject] = rest(line);
    } else if (word == "never") {
      table.never_written[subject] = rest(line);
    } else {
      throw std::runtime_error("layers.txt:" + std::to_string(number) + ": unknown word " + word);
    }
  }
  return table;
}

std::vector<std::string> layer_violations(const SourceTree& tree, const LayerTable& table) {
  Strings found;
  for (const auto& [path, text] : tree) {
    if (!is_cpp(path) || lies_in(path, "tests")) continue;
    const IncludeCheck check(table, path);
    if (!check.has_room()) {
      found.push_back(path + ":1: its folder has no line in layers.txt");
      continue;
    }
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (const auto violation = check.violation(line); !violation.empty()) {
        found.push_back(path + ":" + std::to_string(number) + ": " + violation);
      }
    }
  }
  return found;
}

std::vector<std::string> unused_lines(const SourceTree& tree, const LayerTable& table) {
  Strings found;
  std::set<std::string> libraries;
  for (const auto& [folder, room] : table.rooms) {
    const auto first = tree.lower_bound(folder + '/');
    if (first == tree.end() || !lies_in(first->first, folder))
      found.push_back("room " + folder + ": no file of the tree lies in it");
    libraries.insert(room.libraries.begin(), room.libraries.end());
  }
  for (const auto& [name, prefixes] : table.libraries) {
    if (libraries.count(name) == 0) found.push_back("library " + name + ": no room may include it");
  }
  return found;
}

}  // namespace gradmon
