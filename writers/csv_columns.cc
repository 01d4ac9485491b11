// SPDX-License-Identifier: Apache-2.0
#include "writers/csv_columns.h"

#include <cstddef>
#include <utility>

namespace gradmon {
namespace {

using Source = CsvCell::Source;

// A plan under construction: each call is a column.
class Columns {
 public:
  Columns& add(const char* title, Source source, std::size_t value = 0) {
    if (!plan_.cells.empty()) plan_.header += ',';
    plan_.header += title;
    plan_.cells.push_back({source, static_cast<std::uint8_t>(value), title});
    return *this;
  }
  Columns& place() {
    return add("vpp_stage", Source::vpp_stage).add("name", Source::name).add("step", Source::step);
  }
  Columns& micro_step() { return add("micro_step", Source::micro_step); }
  Columns& number(const char* title, Column column) {
    return add(title, Source::number, static_cast<std::size_t>(column));
  }
  Columns& tensor(const std::vector<Op>& ops) {
    for (const Op op : ops) {
      add(name_of(op), op == Op::nans ? Source::count : Source::number, static_cast<std::size_t>(op));
    }
    return add("shape", Source::shape).add("dtype", Source::dtype);
  }
  ColumnPlan end() {
    plan_.header += '\n';
    return std::move(plan_);
  }

 private:
  ColumnPlan plan_;
};

}  // namespace

bool has_micro_step(Kind kind, const Layout& layout) {
  switch (kind) {
    case Kind::actv:
    case Kind::actv_grad:
    case Kind::attention_hook:
    case Kind::moe_router_logit_hook:
      return true;
    case Kind::grad_unreduced:
      return layout.micro_step_in_grad_unreduced;
    default:
      return false;
  }
}

ColumnPlan column_plan(Kind kind, const Layout& layout) {
  Columns columns;
  switch (kind) {
    case Kind::attention_hook:
      columns.place().micro_step();
      return columns.number("entropy", Column::entropy).number("softmax_max", Column::softmax_max).end();
    case Kind::linear_hook:
      return columns.place().number("sr", Column::sr).number("kernel_norm", Column::kernel_norm).end();
    case Kind::other:
      return columns.place().number("mg_direction", Column::mg_direction).tensor(layout.ops).end();
    case Kind::moe_router_weight_hook:
      return columns.place().number("cosine", Column::cosine).end();
    case Kind::moe_router_logit_hook:
      return columns.place().micro_step().number("entropy", Column::entropy).end();
    case Kind::scalar:
      columns.add("name", Source::name).add("step", Source::step);
      columns.add("samples", Source::count, static_cast<std::size_t>(Column::samples));
      return columns.number("value", Column::value).end();
    default:
      columns.place();
      if (has_micro_step(kind, layout)) columns.micro_step();
      return columns.tensor(layout.ops).end();
  }
}

std::vector<std::pair<const char*, double>> titled_values(const Record& record) {
  Layout all;
  all.ops = {Op::min, Op::max, Op::mean, Op::norm, Op::nans, Op::zeros};
  std::vector<std::pair<const char*, double>> values;
  for (const CsvCell& cell : column_plan(record.kind, all).cells) {
    if (cell.source != Source::number && cell.source != Source::count) continue;
    if (record.mask & (1U << cell.value)) values.emplace_back(cell.title, record.values[cell.value]);
  }
  return values;
}

void append_cell(std::string& line, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) {
    if (c == '"') line += '"';
    line += c;
  }
  line += '"';
}

}  // namespace gradmon
