// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/gradmonctl/show/screen.h"

namespace gradmon {

// What a command tells people: a list of one line an entry, with prose around it. A value.
struct Listing {
  enum class Keep : std::uint8_t { first, last };  // which entries a small screen shows

  std::string noun;  // what an entry is: "rank"
  Keep keep = Keep::first;
  std::string all = "--all shows all";  // how to see what was left out
  std::string before = {};              // whole lines
  std::vector<std::string> titles = {};
  std::vector<std::string> entries = {};
  std::string after = {};  // whole lines
};

// For a file or a pipe: all of it.
std::string whole_text(const Listing& listing);
// For a screen: no line is wider, and there are fewer lines than it has rows, as a
// prompt follows. Entries are cut with an ellipsis, prose goes on in the next line;
// of entries that have no room a line says how many there are. No screen: all of it.
std::string text_on(const std::optional<Screen>& screen, const Listing& listing);

}  // namespace gradmon
