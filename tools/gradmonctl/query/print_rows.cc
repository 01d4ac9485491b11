// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/query/print_rows.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tools/gradmonctl/show/listing.h"
#include "tools/gradmonctl/show/text_table.h"
#include "writers/sinks/csv/csv_text.h"

namespace gradmon {
namespace {

using Type = SqliteValue::Type;

// The shortest text that reads back the same: "0.25", "1e-09", "3.0".
std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  std::string shortest(text, std::to_chars(text, text + sizeof text, value).ptr);
  if (shortest.find_first_of(".e") == std::string::npos) shortest += ".0";
  return shortest;
}

std::string cell_text(const SqliteValue& value) {
  switch (value.type) {
    case Type::null:
      return "";
    case Type::integer:
      return std::to_string(value.integer);
    case Type::real:
      return number_text(value.real);
    case Type::text:
      return std::string(value.text);
  }
  return "";
}

std::string json_text(const SqliteValue& value) {
  const bool number = value.type == Type::integer || (value.type == Type::real && std::isfinite(value.real));
  if (value.type == Type::null) return "null";
  if (number) return cell_text(value);
  return nlohmann::json(cell_text(value)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> titles_of(const SqliteStatement& statement) {
  std::vector<std::string> titles;
  for (int i = 0; i < statement.columns(); ++i) titles.push_back(statement.column_name(i));
  return titles;
}

// Calls `on_row` for each row until it returns false.
template <class OnRow>
tl::expected<void, std::string> each_row(SqliteStatement& statement, const OnRow& on_row) {
  for (;;) {
    const auto row = statement.step();
    if (!row) return tl::unexpected(row.error().text);
    if (!*row || !on_row()) return {};
  }
}

tl::expected<void, std::string> print_csv(SqliteStatement& statement, std::ostream& out) {
  std::string line;
  for (const std::string& title : titles_of(statement)) append_cell(line += line.empty() ? "" : ",", title);
  out << line << '\n';
  return each_row(statement, [&] {
    line.clear();
    for (int i = 0; i < statement.columns(); ++i) {
      if (i > 0) line += ',';
      append_cell(line, cell_text(statement.value(i)));
    }
    out << line << '\n';
    return out.good();
  });
}

tl::expected<void, std::string> print_json(SqliteStatement& statement, std::ostream& out) {
  std::vector<std::string> keys;
  for (const std::string& title : titles_of(statement))
    keys.push_back(json_text(SqliteValue::of(std::string_view(title))));
  const char* before = "[\n";
  auto done = each_row(statement, [&] {
    out << before;
    before = ",\n";
    for (int i = 0; i < statement.columns(); ++i)
      out << (i == 0 ? " {" : ", ") << keys[static_cast<std::size_t>(i)] << ": "
          << json_text(statement.value(i));
    out << '}';
    return out.good();
  });
  out << (*before == '[' ? "[" : "\n") << "]\n";
  return done;
}

tl::expected<void, std::string> print_table(SqliteStatement& statement, bool all, const Console& console) {
  using Align = TextTable::Align;
  std::optional<TextTable> table;
  std::size_t rows = 0;
  bool stopped = false;
  auto done = each_row(statement, [&] {
    stopped = rows == kMostTableRows;
    if (stopped) return false;
    std::vector<TextTable::Column> columns;
    std::vector<std::string> cells;
    for (int i = 0; i < statement.columns(); ++i) {
      const SqliteValue value = statement.value(i);
      if (!table)
        columns.push_back({statement.column_name(i), value.type == Type::text ? Align::left : Align::right});
      cells.push_back(cell_text(value));
    }
    if (!table) table.emplace(std::move(columns));
    table->add(cells);
    ++rows;
    return true;
  });
  if (!table) {
    std::vector<TextTable::Column> columns;
    for (const std::string& title : titles_of(statement)) columns.push_back({title, Align::left});
    table.emplace(std::move(columns));
  }
  Listing listing{"row"};
  table->fill(listing);
  console.out << fit_to_screen(all ? std::nullopt : console.screen, listing);
  if (stopped)
    return tl::unexpected("stopped after " + std::to_string(rows) +
                          " rows; use --format csv or json for more, or a narrower query");
  return done;
}

}  // namespace

tl::expected<void, std::string> print_rows(SqliteStatement& statement, RowFormat format, bool all,
                                           const Console& console) {
  switch (format) {
    case RowFormat::table:
      return print_table(statement, all, console);
    case RowFormat::csv:
      return print_csv(statement, console.out);
    case RowFormat::json:
      return print_json(statement, console.out);
  }
  return {};
}

}  // namespace gradmon
