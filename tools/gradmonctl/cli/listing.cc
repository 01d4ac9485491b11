// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/listing.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

constexpr const char* kMargin = "  ";  // of a continuation line

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

std::string left_out(std::size_t count, const std::string& noun, const std::string& all) {
  return "… and " + std::to_string(count) + " more " + noun + (count == 1 ? "" : "s") + " (" + all + ")";
}

// The entries that fit into `room` lines, and a line that counts the omitted entries.
Lines shown_entries(const Listing& listing, std::size_t room) {
  Lines entries = listing.entries;
  if (entries.size() <= room) return entries;
  const std::size_t kept = std::max<std::size_t>(room, 1) - 1;
  const std::size_t more = entries.size() - kept;
  const std::string note = left_out(more, listing.noun, listing.all);
  if (listing.keep == Listing::Keep::first) {
    entries.resize(kept);
    entries.push_back(note);
  } else {
    entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(more));
    entries.insert(entries.begin(), note);
  }
  return entries;
}

}  // namespace

std::string folded_to_width(const std::string& text, std::size_t columns) {
  return joined(folded(text, columns));
}

std::string full_text(const Listing& listing) {
  return listing.before + joined(listing.titles) + joined(listing.entries) + listing.after;
}

std::string fit_to_screen(const std::optional<Screen>& screen, const Listing& listing) {
  if (!screen) return full_text(listing);
  const std::size_t room = std::max<std::size_t>(screen->rows, 2) - 1;
  Lines lines = folded(listing.before, screen->columns);
  const Lines after = folded(listing.after, screen->columns);
  const std::size_t taken = lines.size() + listing.titles.size() + after.size();
  Lines table = listing.titles;
  for (std::string& entry : shown_entries(listing, room > taken ? room - taken : 0))
    table.push_back(std::move(entry));
  for (const std::string& line : table) lines.push_back(cut_to_width(line, screen->columns));
  lines.insert(lines.end(), after.begin(), after.end());
  if (lines.size() > room) {  // The prose alone does not fit.
    const std::size_t more = lines.size() - room + 1;
    lines.resize(room - 1);
    lines.push_back(cut_to_width(left_out(more, "line", listing.all), screen->columns));
  }
  return joined(lines);
}

void TextTable::add(const std::vector<std::string>& cells) {
  std::vector<std::string> row;
  for (const std::string& cell : cells) row.push_back(printable(cell));
  row.resize(columns_.size());
  rows_.push_back(std::move(row));
}

std::vector<std::string> TextTable::lines() const {
  std::vector<std::vector<std::string>> rows(1);
  for (const Column& column : columns_) rows.front().push_back(column.title);
  rows.insert(rows.end(), rows_.begin(), rows_.end());
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& line : rows) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], display_width(line[i]));
  }
  std::vector<std::string> lines;
  for (const auto& line : rows) {
    std::string shown;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - display_width(line[i]), ' ');
      if (i > 0) shown += "  ";
      shown += columns_[i].align == Align::left ? line[i] + blanks : blanks + line[i];
    }
    shown.erase(shown.find_last_not_of(' ') + 1);
    lines.push_back(std::move(shown));
  }
  return lines;
}

void TextTable::fill(Listing& listing) const {
  std::vector<std::string> all = lines();
  listing.titles = {std::move(all.front())};
  listing.entries.assign(std::make_move_iterator(all.begin() + 1), std::make_move_iterator(all.end()));
}

std::string TextTable::text() const {
  std::string text;
  for (const std::string& line : lines()) text += line + '\n';
  return text;
}

}  // namespace gradmon
