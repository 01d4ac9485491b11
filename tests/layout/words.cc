// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/words.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <regex>
#include <set>
#include <sstream>

namespace gradmon {
namespace {

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_text(const std::string& path) {
  const std::set<std::string> kinds{".h",  ".cc",     ".py",  ".pyi",  ".sh",  ".proto", ".cmake",
                                    ".md", ".golden", ".txt", ".json", ".pml", ""};
  return kinds.count(std::filesystem::path(path).extension().string()) != 0 &&
         !lies_in(path, "tests/layout") && !lies_in(path, "tests/fuzz/corpus");
}

std::size_t line_of(const std::string& text, std::size_t offset) {
  return 1 + static_cast<std::size_t>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
}

std::string place(const std::string& path, const std::string& text, std::size_t offset) {
  return path + ":" + std::to_string(line_of(text, offset)) + ": ";
}

// The text in lower case, with one space for each run of separators: spaces, line ends, comment
// marks, and the quotes between the parts of a long literal. `offsets`: the original offset of
// each byte.
std::string flattened(const std::string& text, std::vector<std::size_t>& offsets) {
  std::string flat;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool separates =
        std::isspace(static_cast<unsigned char>(c)) != 0 || c == '/' || c == '#' || c == '"';
    if (separates && !flat.empty() && flat.back() == ' ') continue;
    flat += separates ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    offsets.push_back(i);
  }
  return flat;
}

// Every name that ends in .md, perhaps with its folders, and its offset.
std::vector<std::pair<std::size_t, std::string>> names_of_pages(const std::string& text) {
  const std::string ending = ".md";
  std::vector<std::pair<std::size_t, std::string>> found;
  for (std::size_t at = text.find(ending); at != std::string::npos; at = text.find(ending, at + 1)) {
    const std::size_t end = at + ending.size();
    if (end < text.size() && in_word(text[end])) continue;
    std::size_t begin = at;
    while (begin > 0 && (in_word(text[begin - 1]) || std::strchr("./-", text[begin - 1]) != nullptr)) --begin;
    if (begin < at && (in_word(text[at - 1]) || text[at - 1] == '-'))
      found.emplace_back(begin, text.substr(begin, end - begin));
  }
  return found;
}

}  // namespace

std::vector<std::string> parse_phrases(const std::string& text) {
  std::vector<std::string> phrases;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line.front() != '#') phrases.push_back(line);
  return phrases;
}

std::vector<std::string> phrase_violations(const SourceTree& tree, const std::vector<std::string>& phrases) {
  std::vector<std::string> found;
  for (const auto& [path, text] : tree) {
    if (!is_text(path)) continue;
    std::vector<std::size_t> offsets;
    const std::string flat = flattened(text, offsets);
    for (const std::string& phrase : phrases) {
      for (std::size_t at = flat.find(phrase); at != std::string::npos; at = flat.find(phrase, at + 1))
        found.push_back(place(path, text, offsets[at]) + "\"" + phrase + "\" is a phrase of words.txt");
    }
  }
  return found;
}

std::vector<std::string> missing_pages(const SourceTree& tree) {
  std::set<std::string> pages;  // by name alone, and by path
  for (const auto& [path, text] : tree) {
    pages.insert(path);
    pages.insert(std::filesystem::path(path).filename().string());
  }
  // A link in a page, or the name of a page in any file.
  const std::regex link(R"(\]\(([^)#:\s]+)(#[^)]*)?\))");
  std::vector<std::string> found;
  for (const auto& [path, text] : tree) {
    if (!is_text(path) || lies_in(path, "tests/layout")) continue;
    const auto missing = [&, &path = path, &text = text](std::size_t at, const std::string& page) {
      found.push_back(place(path, text, at) + "cites " + page + ", which is not in this repository");
    };
    if (std::filesystem::path(path).extension() == ".md") {
      const auto folder = std::filesystem::path(path).parent_path();
      for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
        const std::string target = (folder / it->str(1)).lexically_normal().generic_string();
        const bool is_folder = std::any_of(tree.begin(), tree.end(),
                                           [&](const auto& file) { return lies_in(file.first, target); });
        if (pages.count(target) == 0 && !is_folder)
          missing(static_cast<std::size_t>(it->position(1)), it->str(1));
      }
    }
    for (const auto& [at, page] : names_of_pages(text)) {
      const bool elsewhere = page.rfind("//", 0) == 0;  // part of a web address
      const bool linked = at > 0 && text[at - 1] == '(';
      if (!elsewhere && !linked && pages.count(std::filesystem::path(page).filename().string()) == 0)
        missing(at, page);
    }
  }
  return found;
}

}  // namespace gradmon
