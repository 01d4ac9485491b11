// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/gradmonctl/cli/screen.h"

namespace gradmon {

// The readable output of a command: a list with one line per entry, and prose before and
// after it. A value.
struct Listing {
  enum class Keep : std::uint8_t { first, last };  // the entries that a small screen shows

  std::string noun;  // for one entry: "rank"
  Keep keep = Keep::first;
  std::string all = "--all shows all";  // the hint for the omitted entries
  std::string before = {};              // whole lines
  std::vector<std::string> titles = {};
  std::vector<std::string> entries = {};
  std::string after = {};  // whole lines
};

// Prose wrapped at blanks; splits a wider word.
std::string folded_to_width(const std::string& text, std::size_t columns);

// The complete text, for a file or a pipe.
std::string full_text(const Listing& listing);
// The text for a screen: no line is wider than the screen, and lines are fewer than rows, because a prompt
// follows. Cuts wide entries with an ellipsis; wraps wide prose; one line has the number of omitted entries.
// Without a screen: the complete text.
std::string fit_to_screen(const std::optional<Screen>& screen, const Listing& listing);

}  // namespace gradmon
