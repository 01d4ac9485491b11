// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/listing.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

using Lines = TextTable::Lines;

constexpr const char* kMargin = "  ";      // of a continuation line
constexpr std::size_t kBetween = 2;        // blanks between columns
constexpr std::size_t kIndent = 4;         // of the columns that do not fit beside the others
constexpr std::size_t kLeastOfAText = 24;  // columns for the last cell of a row beside the others

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

// Splits a word that is wider than the screen.
void push(std::string now, std::size_t columns, Lines& into) {
  while (columns > 2 && display_width(now) > columns) {
    std::string head = cut_to_width(now, columns);
    head.resize(head.size() - std::string_view("…").size());
    now.erase(0, head.size());
    into.push_back(std::move(head));
  }
  into.push_back(std::move(now));
}

// Wraps a line of prose at blanks.
void fold(std::string_view line, std::size_t columns, Lines& into) {
  std::string now;
  bool begun = false;  // `now` has a word
  while (!line.empty()) {
    const std::size_t word = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t end = std::min(line.find(' ', word), line.size());
    const std::string more = now + std::string(line.substr(0, end));
    if (begun && display_width(more) > columns) {
      push(now, columns, into);
      now = kMargin + std::string(line.substr(word, end - word));
    } else {
      now = more;
    }
    begun = true;
    line.remove_prefix(end);
  }
  push(now, columns, into);
}

Lines folded(std::string_view text, std::size_t columns) {
  Lines lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    fold(line, columns, lines);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

// Skips a blank line.
void push_trimmed(std::string line, Lines& into) {
  line.erase(line.find_last_not_of(' ') + 1);
  if (!line.empty()) into.push_back(std::move(line));
}

std::string left_out(std::size_t count, const std::string& noun, const std::string& all) {
  return "… and " + std::to_string(count) + " more " + noun + (count == 1 ? "" : "s") + " (" + all + ")";
}

// The entries that fit into `room` lines, and a line that counts the omitted entries.
Lines shown_entries(const Listing& listing, std::vector<Lines> entries, std::size_t room) {
  const bool last = listing.keep == Listing::Keep::last;
  if (last) std::reverse(entries.begin(), entries.end());
  const auto add = [](std::size_t lines, const Lines& entry) { return lines + entry.size(); };
  if (std::accumulate(entries.begin(), entries.end(), std::size_t{0}, add) > room) {
    std::size_t kept = 0;
    for (std::size_t lines = 1; (lines += entries[kept].size()) <= room;) ++kept;
    const std::string note = left_out(entries.size() - kept, listing.noun, listing.all);
    entries.resize(kept);
    entries.push_back({note});
  }
  if (last) std::reverse(entries.begin(), entries.end());
  Lines shown;
  for (const Lines& entry : entries) shown.insert(shown.end(), entry.begin(), entry.end());
  return shown;
}

}  // namespace

std::string full_text(const Listing& listing) {
  return listing.before + (listing.table ? listing.table->text() : joined(listing.entries)) + listing.after;
}

std::string fit_to_screen(const std::optional<Screen>& screen, const Listing& listing) {
  if (!screen) return full_text(listing);
  const std::size_t room = std::max<std::size_t>(screen->rows, 2) - 1;
  Lines lines = folded(listing.before, screen->columns);
  const Lines after = folded(listing.after, screen->columns);
  std::vector<Lines> entries;
  for (const std::string& entry : listing.entries) fold(entry, screen->columns, entries.emplace_back());
  if (listing.table) {
    entries = listing.table->wrapped(screen->columns);
    lines.insert(lines.end(), entries.front().begin(), entries.front().end());
    entries.erase(entries.begin());
  }
  const std::size_t taken = lines.size() + after.size();
  for (std::string& line : shown_entries(listing, std::move(entries), room > taken ? room - taken : 0))
    lines.push_back(std::move(line));
  lines.insert(lines.end(), after.begin(), after.end());
  if (lines.size() > room) {  // The prose alone does not fit.
    const std::size_t more = lines.size() - room + 1;
    lines.resize(room - 1);
    lines.push_back(cut_to_width(left_out(more, "line", listing.all), screen->columns));
  }
  return joined(lines);
}

TextTable::TextTable(const std::vector<std::string>& titles) : rows_(1) {
  for (const std::string& title : titles) {
    left_.push_back(title.rfind('<', 0) == 0);
    rows_.front().push_back(title.substr(left_.back() ? 1 : 0));
  }
}

void TextTable::add(const std::vector<std::string>& cells) {
  std::vector<std::string>& row = rows_.emplace_back();
  for (const std::string& cell : cells) row.push_back(printable(cell));
  row.resize(left_.size());
}

std::vector<Lines> TextTable::wrapped(std::size_t columns) const {
  std::vector<std::size_t> widths(left_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::vector<std::size_t> begins(left_.size(), 0);  // columns of the screen
  const auto beside = [&](std::size_t i) { return begins[i - 1] + widths[i - 1] + kBetween; };
  for (std::size_t i = 1; i < widths.size(); ++i) {
    const std::size_t least = i + 1 == widths.size() ? std::min(widths[i], kLeastOfAText) : widths[i];
    begins[i] = beside(i) + least <= columns ? beside(i) : std::min(kIndent, columns / 2);
  }
  std::vector<Lines> all;
  for (const auto& row : rows_) {
    Lines& lines = all.emplace_back();
    std::string now;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::size_t begin = begins[i];
      if (i > 0 && begin != beside(i)) push_trimmed(std::exchange(now, ""), lines);
      Lines parts;
      if (widths[i] > columns - begin) fold(row[i], columns - begin, parts);
      if (parts.empty()) parts.push_back(row[i]);
      now.append(begin - display_width(now) + (left_[i] ? 0 : widths[i] - display_width(row[i])), ' ');
      for (std::size_t part = 0; part < parts.size(); ++part) {
        if (part > 0) push_trimmed(std::exchange(now, std::string(begin, ' ')), lines);
        now += parts[part];
      }
    }
    push_trimmed(std::move(now), lines);
    if (lines.empty()) lines.emplace_back();
  }
  return all;
}

std::string TextTable::text() const {
  std::string text;
  for (const Lines& row : wrapped(std::numeric_limits<std::size_t>::max())) text += joined(row);
  return text;
}

}  // namespace gradmon
