// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

constexpr std::ptrdiff_t kMaxShownLines = 12;

using Lines = std::vector<std::string>;

// Each line keeps its line end, so that a missing last line end shows.
Lines lines_of(const std::string& text) {
  Lines lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return lines;
}

void print_lines(std::ostream& out, char mark, Lines::const_iterator begin, Lines::const_iterator end) {
  for (auto line = begin; line != end; ++line) {
    if (line - begin == kMaxShownLines) {
      out << mark << "... " << end - line << " more\n";
      return;
    }
    out << mark << *line << (line->back() == '\n' ? "" : "(no line end)\n");
  }
}

}  // namespace

std::string golden_difference(const std::string& name, const std::string& now) {
  const std::string path = std::string(GRADMON_GOLDEN) + "/" + name;
  if (std::getenv("GRADMON_WRITE_GOLDEN") != nullptr) std::ofstream(path) << now;
  const Lines expected = lines_of(read_text(path));
  const Lines found = lines_of(now);
  if (expected == found) return "";
  const auto [left, right] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  const auto at_most = std::min(expected.end() - left, found.end() - right);
  const auto same_tail =
      std::mismatch(expected.rbegin(), expected.rbegin() + at_most, found.rbegin()).first - expected.rbegin();
  std::ostringstream out;
  out << path << ":" << left - expected.begin() + 1 << ": expected (-) and found (+)\n";
  print_lines(out, '-', left, expected.end() - same_tail);
  print_lines(out, '+', right, found.end() - same_tail);
  return out.str();
}

}  // namespace gradmon
