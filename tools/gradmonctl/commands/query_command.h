// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tools/gradmonctl/query/print_rows.h"
#include "tools/gradmonctl/query/query_database.h"

namespace gradmon {

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
