// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/show/console.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

enum class RowFormat : std::uint8_t {
  table,  // for people; cut to the screen unless `all`
  csv,    // with a header; numbers in full precision, an empty cell for NULL
  json    // an array of objects; NaN and infinity as the texts "nan", "inf", "-inf"
};

// The most rows of a table; the other formats have no limit.
inline constexpr std::size_t kMostTableRows = 100'000;

// Runs the statement and prints its rows to `console.out`: a table after the last row, the other formats row
// by row. Stops early if `console.out` fails. An error ends the output after the last whole row.
tl::expected<void, std::string> print_rows(SqliteStatement& statement, RowFormat format, bool all,
                                           const Console& console);

}  // namespace gradmon
