// SPDX-License-Identifier: Apache-2.0
#include "writers/sqlite/virtual_table.h"

#include <sqlite3.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

namespace gradmon {
namespace {

using Relation = ColumnConstraint::Relation;

struct Table : sqlite3_vtab {
  VirtualTable* table = nullptr;  // owned by the module
};

struct Cursor : sqlite3_vtab_cursor {
  std::unique_ptr<RowCursor> rows;
  bool at_end = true;
};

std::optional<Relation> relation_of(unsigned char operation) {
  switch (operation) {
    case SQLITE_INDEX_CONSTRAINT_EQ:
      return Relation::equal;
    case SQLITE_INDEX_CONSTRAINT_GT:
      return Relation::greater;
    case SQLITE_INDEX_CONSTRAINT_GE:
      return Relation::greater_equal;
    case SQLITE_INDEX_CONSTRAINT_LT:
      return Relation::less;
    case SQLITE_INDEX_CONSTRAINT_LE:
      return Relation::less_equal;
    case SQLITE_INDEX_CONSTRAINT_GLOB:
      return Relation::glob;
    default:
      return std::nullopt;
  }
}

int failed(sqlite3_vtab* table, const std::string& text) {
  sqlite3_free(table->zErrMsg);
  table->zErrMsg = sqlite3_mprintf("%s", text.c_str());
  return SQLITE_ERROR;
}

int connect(sqlite3* database, void* table, int, const char* const*, sqlite3_vtab** made, char** error) {
  auto* const own = static_cast<VirtualTable*>(table);
  // Views may read it although the schema is not trusted.
  sqlite3_vtab_config(database, SQLITE_VTAB_INNOCUOUS);
  const int code = sqlite3_declare_vtab(database, ("CREATE TABLE t (" + own->columns() + ")").c_str());
  if (code != SQLITE_OK) {
    *error = sqlite3_mprintf("%s", sqlite3_errmsg(database));
    return code;
  }
  auto* const connected = new Table{};
  connected->table = own;
  *made = connected;
  return SQLITE_OK;
}

int disconnect(sqlite3_vtab* table) {
  delete static_cast<Table*>(table);
  return SQLITE_OK;
}

// Writes the used constraints into idxStr, as pairs of column and relation.
int best_index(sqlite3_vtab* table, sqlite3_index_info* info) {
  const VirtualTable& own = *static_cast<Table*>(table)->table;
  std::string plan;
  double cost = 1e12;
  int arguments = 0;
  for (int i = 0; i < info->nConstraint; ++i) {
    const auto& constraint = info->aConstraint[i];
    const auto relation = relation_of(constraint.op);
    const bool binary = std::string_view(sqlite3_vtab_collation(info, i)) == "BINARY";
    if (constraint.usable == 0 || !binary || !relation || !own.uses({constraint.iColumn, *relation}))
      continue;
    info->aConstraintUsage[i].argvIndex = ++arguments;
    plan += std::to_string(constraint.iColumn) + ' ' + std::to_string(static_cast<int>(*relation)) + ' ';
    cost /= *relation == Relation::equal ? 100 : 4;
  }
  info->idxStr = sqlite3_mprintf("%s", plan.c_str());
  info->needToFreeIdxStr = 1;
  info->estimatedCost = cost;
  return info->idxStr != nullptr ? SQLITE_OK : SQLITE_NOMEM;
}

int open_cursor(sqlite3_vtab*, sqlite3_vtab_cursor** made) {
  *made = new Cursor{};
  return SQLITE_OK;
}

int close_cursor(sqlite3_vtab_cursor* cursor) {
  delete static_cast<Cursor*>(cursor);
  return SQLITE_OK;
}

SqliteValue value_of(sqlite3_value* value) {
  switch (sqlite3_value_type(value)) {
    case SQLITE_INTEGER:
      return SqliteValue::of(std::int64_t{sqlite3_value_int64(value)});
    case SQLITE_FLOAT:
      return SqliteValue::of(sqlite3_value_double(value));
    case SQLITE_NULL:
      return {};
    default: {
      const auto* const bytes = static_cast<const char*>(sqlite3_value_blob(value));
      const int size = sqlite3_value_bytes(value);
      return SqliteValue::of(bytes == nullptr ? std::string_view()
                                              : std::string_view(bytes, static_cast<std::size_t>(size)));
    }
  }
}

int next_row(sqlite3_vtab_cursor* cursor) {
  auto* const own = static_cast<Cursor*>(cursor);
  try {
    const auto row = own->rows->next();
    if (!row) return failed(cursor->pVtab, row.error());
    own->at_end = !*row;
    return SQLITE_OK;
  } catch (const std::exception& error) {
    return failed(cursor->pVtab, error.what());
  }
}

int filter(sqlite3_vtab_cursor* cursor, int, const char* plan, int arguments, sqlite3_value** values) {
  auto* const own = static_cast<Cursor*>(cursor);
  try {
    std::vector<BoundConstraint> constraints;
    char* at = const_cast<char*>(plan);
    for (int i = 0; i < arguments; ++i) {
      BoundConstraint constraint;
      constraint.on.column = static_cast<int>(std::strtol(at, &at, 10));
      constraint.on.relation = static_cast<Relation>(std::strtol(at, &at, 10));
      constraint.value = value_of(values[i]);
      constraints.push_back(constraint);
    }
    own->rows = static_cast<Table*>(cursor->pVtab)->table->scan(constraints);
  } catch (const std::exception& error) {
    return failed(cursor->pVtab, error.what());
  }
  return next_row(cursor);
}

int at_end(sqlite3_vtab_cursor* cursor) { return static_cast<Cursor*>(cursor)->at_end ? 1 : 0; }

int column(sqlite3_vtab_cursor* cursor, sqlite3_context* context, int index) {
  const SqliteValue value = static_cast<Cursor*>(cursor)->rows->value(index);
  switch (value.type) {
    case SqliteValue::Type::null:
      break;
    case SqliteValue::Type::integer:
      sqlite3_result_int64(context, value.integer);
      break;
    case SqliteValue::Type::real:
      sqlite3_result_double(context, value.real);
      break;
    case SqliteValue::Type::text:
      sqlite3_result_text64(context, value.text.data(), value.text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
      break;
  }
  return SQLITE_OK;
}

int row_id(sqlite3_vtab_cursor* cursor, sqlite3_int64* id) {
  *id = static_cast<Cursor*>(cursor)->rows->row_id();
  return SQLITE_OK;
}

// Without xCreate: the module's name is the table's.
const sqlite3_module& module_of_tables() {
  static const sqlite3_module module = [] {
    sqlite3_module made{};
    made.xConnect = connect;
    made.xBestIndex = best_index;
    made.xDisconnect = disconnect;
    made.xDestroy = disconnect;
    made.xOpen = open_cursor;
    made.xClose = close_cursor;
    made.xFilter = filter;
    made.xNext = next_row;
    made.xEof = at_end;
    made.xColumn = column;
    made.xRowid = row_id;
    return made;
  }();
  return module;
}

void delete_table(void* table) { delete static_cast<VirtualTable*>(table); }

void call_text_function(sqlite3_context* context, int, sqlite3_value** values) {
  const auto function = reinterpret_cast<TextFunction>(sqlite3_user_data(context));
  const std::string_view result = function(value_of(values[0]).text);
  sqlite3_result_text64(context, result.data() != nullptr ? result.data() : "", result.size(),
                        SQLITE_TRANSIENT, SQLITE_UTF8);
}

SqliteResult<void> outcome(int code) {
  if (code == SQLITE_OK) return {};
  return tl::unexpected(SqliteError{SqliteError::Cause::environment, sqlite3_errstr(code)});
}

}  // namespace

SqliteResult<void> add_table(SqliteDatabase& database, const std::string& name,
                             std::unique_ptr<VirtualTable> table) {
  return outcome(sqlite3_create_module_v2(database.handle(), name.c_str(), &module_of_tables(),
                                          table.release(), delete_table));
}

SqliteResult<void> add_function(SqliteDatabase& database, const std::string& name, TextFunction function) {
  return outcome(sqlite3_create_function_v2(
      database.handle(), name.c_str(), 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
      reinterpret_cast<void*>(function), call_text_function, nullptr, nullptr, nullptr));
}

bool matches_glob(const std::string& pattern, const std::string& text) {
  return sqlite3_strglob(pattern.c_str(), text.c_str()) == 0;
}

}  // namespace gradmon
