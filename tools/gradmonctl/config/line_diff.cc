// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/config/line_diff.h"

#include <algorithm>
#include <vector>

#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

using Lines = std::vector<std::string_view>;
constexpr std::size_t kMaxCells = 4'000'000;  // of the table; shows larger inputs as one run

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

// The longest common subsequence by dynamic programming: at(i, j) is its length for the
// lines of `before` from i and of `after` from j.
class CommonLines {
 public:
  CommonLines(const Lines& before, const Lines& after) : width_(after.size() + 1) {
    if ((before.size() + 1) * width_ > kMaxCells) return;
    lengths_.assign((before.size() + 1) * width_, 0);
    for (std::size_t i = before.size(); i-- > 0;) {
      for (std::size_t j = after.size(); j-- > 0;) {
        lengths_[i * width_ + j] =
            before[i] == after[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
      }
    }
  }
  bool known() const { return !lengths_.empty(); }
  unsigned at(std::size_t i, std::size_t j) const { return lengths_[i * width_ + j]; }

 private:
  std::size_t width_;
  std::vector<unsigned> lengths_;
};

class Differ {
 public:
  Differ(Lines before, Lines after)
      : before_(std::move(before)), after_(std::move(after)), common_(before_, after_) {}

  std::string text(std::size_t lines_skipped) {
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < before_.size() || j < after_.size()) {
      const bool both = i < before_.size() && j < after_.size();
      if (both && common_.known() && before_[i] == after_[j]) {
        flush();
        i += 1;
        j += 1;
        continue;
      }
      if (old_.empty() && new_.empty()) line_ = lines_skipped + i + 1;
      const bool drop =
          i < before_.size() && (!both || !common_.known() || common_.at(i + 1, j) >= common_.at(i, j + 1));
      drop ? add(old_, "- ", before_[i++]) : add(new_, "+ ", after_[j++]);
    }
    flush();
    return std::move(text_);
  }

 private:
  static void add(std::string& to, const char* mark, std::string_view line) {
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    to += mark + printable(line) + '\n';
  }

  void flush() {
    if (old_.empty() && new_.empty()) return;
    text_ += "line " + std::to_string(line_) + ":\n" + old_ + new_;
    old_.clear();
    new_.clear();
  }

  const Lines before_;
  const Lines after_;
  const CommonLines common_;
  std::string text_;
  std::size_t line_ = 0;  // first line of the current run
  std::string old_;
  std::string new_;
};

}  // namespace

std::string line_diff(std::string_view before, std::string_view after) {
  Lines old_lines = lines_of(before);
  Lines new_lines = lines_of(after);
  const auto [old_from, new_from] =
      std::mismatch(old_lines.begin(), old_lines.end(), new_lines.begin(), new_lines.end());
  const auto skipped = old_from - old_lines.begin();
  const auto [old_to, new_to] = std::mismatch(old_lines.rbegin(), std::make_reverse_iterator(old_from),
                                              new_lines.rbegin(), std::make_reverse_iterator(new_from));
  return Differ(Lines(old_from, old_to.base()), Lines(new_from, new_to.base()))
      .text(static_cast<std::size_t>(skipped));
}

}  // namespace gradmon
