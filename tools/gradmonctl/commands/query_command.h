// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/gradmonctl/cli/console.h"
#include "tools/gradmonctl/query/query_database.h"

namespace gradmon {

enum class RowFormat : std::uint8_t {
  table,  // for people; cut to the screen unless `all`
  csv,    // with a header; numbers in full precision, an empty cell for NULL
  json    // an array of objects; NaN and infinity as the texts "nan", "inf", "-inf"
};

// The most rows of a table; the other formats have no limit.
inline constexpr std::size_t kMostTableRows = 100'000;

struct QueryRequest {
  std::string sql;  // "": the rows that `filter` selects
  ValueFilter filter = {};
  std::vector<std::string> places = {};  // database files, run directories, output directories
  std::string run_id = {};               // "": the newest run of an output directory
  RowFormat format = RowFormat::table;
  bool all = false;
};

// gradmonctl query: prints rows of all ranks' databases. Returns the exit code: 1 if the query is wrong or no
// database is readable, 7 if only some are.
int query_command(const QueryRequest& request, const Console& console);

}  // namespace gradmon
