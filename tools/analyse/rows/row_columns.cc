// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row_columns.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>
#include <tuple>
#include <utility>

namespace gradmon {
namespace {

constexpr std::size_t kShownBytes = 40;  // of a cell in a message

std::string shown(std::string_view cell) {
  return '"' + std::string(cell.substr(0, kShownBytes)) + (cell.size() > kShownBytes ? "..." : "") + '"';
}

template <typename Whole>
bool read_whole(std::string_view text, Whole& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() &&
         (result.ptr == end ||
          std::string_view(result.ptr, static_cast<std::size_t>(end - result.ptr)) == ".0");
}

}  // namespace

bool read_number(std::string_view text, double& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ptr == end && result.ec == std::errc()) return true;
  if (text != "True" && text != "False") return false;
  value = text == "True" ? 1 : 0;
  return true;
}

RowColumns::Column RowColumns::column_of(std::string_view title) {
  constexpr std::array<std::pair<std::string_view, Role>, 8> kRoles = {{{"vpp_stage", Role::vpp_stage},
                                                                        {"name", Role::name},
                                                                        {"param_name", Role::name},
                                                                        {"module_name", Role::name},
                                                                        {"step", Role::step},
                                                                        {"micro_step", Role::micro_step},
                                                                        {"shape", Role::shape},
                                                                        {"dtype", Role::dtype}}};
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kParts = {
      {{"input.", "input"}, {"output.", "output"}, {"input_grad.", "input"}, {"output_grad.", "output"}}};
  Column column;
  column.title = title.substr(0, kShownBytes);
  for (const auto& [name, role] : kRoles) {
    if (title == name) column.role = role;
  }
  for (const auto& [prefix, part] : kParts) {
    if (title.substr(0, prefix.size()) != prefix) continue;
    column.part = part;
    title.remove_prefix(prefix.size());
    break;
  }
  column.field = field_named(title);
  if (column.field < kFields) column.role = Role::number;
  return column;
}

tl::expected<RowColumns, std::string> RowColumns::of_header(const std::vector<std::string_view>& titles) {
  RowColumns made;
  for (const std::string_view title : titles) {
    Column column = column_of(title);
    const auto means_the_same = [&](const Column& other) {
      return column.role != Role::unused && std::tie(column.role, column.field, column.part) ==
                                                std::tie(other.role, other.field, other.part);
    };
    if (std::count(titles.begin(), titles.end(), title) > 1 ||
        std::any_of(made.columns_.begin(), made.columns_.end(), means_the_same))
      return tl::unexpected("the title " + shown(title) + " is there twice");
    const bool is_new = std::find(made.parts_.begin(), made.parts_.end(), column.part) == made.parts_.end();
    if (column.role == Role::number && is_new) made.parts_.push_back(column.part);
    made.columns_.push_back(std::move(column));
  }
  if (!is_header(titles))
    return tl::unexpected("found " + shown(titles.empty() ? "" : titles.front()) +
                          " at the beginning; expected a header with the titles \"name\" and \"step\"");
  return made;
}

bool RowColumns::is_header(const std::vector<std::string_view>& cells) {
  const auto has = [&](Role role) {
    return std::any_of(cells.begin(), cells.end(),
                       [role](std::string_view cell) { return column_of(cell).role == role; });
  };
  return has(Role::name) && has(Role::step);
}

// Returns false if the cell does not fit its column.
bool RowColumns::read_cell(const Column& column, std::string_view cell, Row& row) {
  switch (column.role) {
    case Role::number:
      if (cell.empty()) return true;
      row.mask |= 1U << column.field;
      return read_number(cell, row.values[column.field]);
    case Role::name:
      row.name = cell;
      return true;
    case Role::shape:
      row.shape = cell;
      return true;
    case Role::dtype:
      row.dtype = cell;
      return true;
    case Role::step:
      return read_whole(cell, row.step) && row.step >= 0;
    case Role::vpp_stage:
      return cell.empty() || (read_whole(cell, row.vpp_stage) && row.vpp_stage >= 0);
    case Role::micro_step:
      return read_whole(cell, row.micro_step) && row.micro_step >= 0;
    case Role::unused:
      return true;
  }
  return false;
}

tl::expected<void, std::string> RowColumns::read(const std::vector<std::string_view>& cells, Row& row,
                                                 std::size_t index, std::string& name) const {
  if (cells.size() != columns_.size())
    return tl::unexpected("found " + std::to_string(cells.size()) + " cells; expected " +
                          std::to_string(columns_.size()) + " as in the header");
  row.micro_step = -1;
  row.vpp_stage = 0;
  row.mask = 0;
  row.shape = row.dtype = {};
  const std::string_view part = parts_.empty() ? std::string_view() : parts_[index];
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (columns_[i].role == Role::number && columns_[i].part != part) continue;
    if (read_cell(columns_[i], cells[i], row)) continue;
    const char* const expected = columns_[i].role == Role::number ? "a number" : "a whole number";
    return tl::unexpected("found " + shown(cells[i]) + " in the column " + columns_[i].title + "; expected " +
                          expected);
  }
  if (row.shape == "nan") row.mask = 0;
  if (!part.empty()) row.name = name.assign(row.name).append(".").append(part);
  return {};
}

}  // namespace gradmon
