// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/columns.h"

#include <cstddef>

namespace gradmon {
namespace {

using Source = RowColumn::Source;

// Builds a list of columns; each call appends.
class ColumnList {
 public:
  ColumnList& add(const char* title, Source source, std::size_t value = 0) {
    columns_.push_back({source, title, static_cast<std::uint8_t>(value)});
    return *this;
  }
  ColumnList& place() {
    return add("vpp_stage", Source::vpp_stage).add("name", Source::name).add("step", Source::step);
  }
  ColumnList& micro_step() { return add("micro_step", Source::micro_step); }
  ColumnList& number(const char* title, Column column) {
    return add(title, Source::number, static_cast<std::size_t>(column));
  }
  ColumnList& ops(const Layout& layout) {
    for (const Op op : layout.ops) {
      const bool count = statistic_of(op).is_count;
      add(name_of(op), count ? Source::count : Source::number, static_cast<std::size_t>(op));
    }
    return *this;
  }
  ColumnList& sample(const Layout& layout) {
    if (!layout.samples) return *this;
    return number("sampled", Column::sampled)
        .number("mean_se", Column::mean_se)
        .number("norm_se", Column::norm_se);
  }
  ColumnList& tensor() { return add("shape", Source::shape).add("dtype", Source::dtype); }
  std::vector<RowColumn> end() { return std::move(columns_); }

 private:
  std::vector<RowColumn> columns_;
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

Layout layout_of_all_ops() {
  Layout layout;
  layout.ops.clear();
  for (std::size_t op = 0; op < kOps; ++op) layout.ops.push_back(static_cast<Op>(op));
  return layout;
}

std::vector<RowColumn> columns_of(Kind kind, const Layout& layout) {
  ColumnList columns;
  switch (kind) {
    case Kind::attention_hook:
      columns.place().micro_step();
      return columns.number("entropy", Column::entropy).number("softmax_max", Column::softmax_max).end();
    case Kind::linear_hook:
      return columns.place().number("sr", Column::sr).number("kernel_norm", Column::kernel_norm).end();
    case Kind::other:
      return columns.place().number("mg_direction", Column::mg_direction).ops(layout).tensor().end();
    case Kind::moe_router_weight_hook:
      return columns.place().number("cosine", Column::cosine).end();
    case Kind::moe_router_logit_hook:
      return columns.place().micro_step().number("entropy", Column::entropy).end();
    case Kind::scalar:
      columns.add("name", Source::name).add("step", Source::step);
      columns.add("samples", Source::count, static_cast<std::size_t>(Column::samples));
      return columns.number("value", Column::value).end();
    case Kind::update:
    case Kind::ratio:
      return {};
    default:
      columns.place();
      if (has_micro_step(kind, layout)) columns.micro_step();
      return columns.ops(layout).sample(layout).tensor().end();
  }
}

const char* task_of(Kind kind, const Layout& layout) {
  if (kind == Kind::grad_reduced) return "post_grad";
  if (kind == Kind::grad_unreduced) return layout.micro_step_in_grad_unreduced ? "pre_grad" : "acc_grad";
  return name_of(kind);
}

std::vector<std::pair<const char*, double>> titled_values(const Record& record) {
  std::vector<std::pair<const char*, double>> values;
  Layout layout = layout_of_all_ops();
  layout.samples = true;
  for (const RowColumn& column : columns_of(record.kind, layout)) {
    if (column.source != Source::number && column.source != Source::count) continue;
    if (column.is_in(record)) values.emplace_back(column.title, record.values[column.value]);
  }
  return values;
}

}  // namespace gradmon
