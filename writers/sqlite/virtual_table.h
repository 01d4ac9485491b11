// SPDX-License-Identifier: Apache-2.0
// Tables and functions of an SQLite database that this program computes. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

// A condition of a query on one column.
struct ColumnConstraint {
  enum class Relation : std::uint8_t { equal, greater, greater_equal, less, less_equal, glob };
  int column = 0;
  Relation relation = Relation::equal;
};

struct BoundConstraint {
  ColumnConstraint on;
  SqliteValue value;  // valid during the call
};

// The rows of one scan of a table.
class RowCursor {
 public:
  virtual ~RowCursor() = default;
  // Goes to the next row, at first to the first one. False: no further row. An error ends the query.
  virtual tl::expected<bool, std::string> next() = 0;
  // A value of the current row. A text is valid until next().
  virtual SqliteValue value(int column) const = 0;
  // Identifies the current row, equally in each scan: SQLite compares the rows of two scans by it.
  virtual std::int64_t row_id() const = 0;
};

class VirtualTable {
 public:
  virtual ~VirtualTable() = default;
  // Their declarations: "rank INTEGER, step INTEGER".
  virtual std::string columns() const = 0;
  // True if scan() uses the constraint. SQLite checks the rows again.
  virtual bool uses(const ColumnConstraint& constraint) const = 0;
  virtual std::unique_ptr<RowCursor> scan(const std::vector<BoundConstraint>& constraints) = 0;
};

// The table can be read under its name until the database is closed. The database owns it.
[[nodiscard]] SqliteResult<void> add_table(SqliteDatabase& database, const std::string& name,
                                           std::unique_ptr<VirtualTable> table);

// Adds a function from text to text. The result is copied before the next call.
using TextFunction = std::string_view (*)(std::string_view text);
[[nodiscard]] SqliteResult<void> add_function(SqliteDatabase& database, const std::string& name,
                                              TextFunction function);

// The GLOB operator of SQL.
bool matches_glob(const std::string& pattern, const std::string& text);

}  // namespace gradmon
