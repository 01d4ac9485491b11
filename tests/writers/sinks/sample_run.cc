// SPDX-License-Identifier: Apache-2.0
#include "tests/writers/sinks/sample_run.h"

#include <cmath>
#include <limits>

#include "writers/sinks/columns.h"

namespace gradmon {
namespace {

constexpr std::array<const char*, kRecordKinds> kTargets = {
    "fc1.input",  "fc1.input",      "fc1.weight", "fc1.weight", "fc1.weight", "fc1.weight", "fc1.weight",
    "fc1.weight", "core.attention", "lin.linear", "fc1.weight", "moe.router", "moe.router", "loss"};

double value_at(const Record& row, const RowColumn& column) {
  if (column.source == RowColumn::Source::count) return static_cast<double>(256 * (row.step + 1));
  if (row.step == 3 && column.value == 0) return std::nan("");
  if (row.step == 3 && column.value == 1) return -std::numeric_limits<double>::infinity();
  return 0.1 * static_cast<double>(row.step + 1) + static_cast<double>(row.kind) + 1e-9 * column.value +
         100 * row.micro_step;
}

void fill(Record& row, const Layout& layout) {
  for (const RowColumn& column : columns_of(row.kind, layout)) {
    if (column.source != RowColumn::Source::number && column.source != RowColumn::Source::count) continue;
    row.values[column.value] = value_at(row, column);
    row.mask = static_cast<ValueMask>(row.mask | 1U << column.value);
  }
}

}  // namespace

Layout SampleRun::layout(std::uint64_t revision) const {
  Layout layout;
  layout.revision = Revision{revision};
  layout.ndigits = 17;
  layout.step_count_per_record = 100;
  layout.ops = {Op::norm, Op::min, Op::max};
  if (revision == 2) layout.ops = {Op::norm, Op::mean, Op::nans};
  layout.micro_step_in_grad_unreduced = revision == 2;
  return layout;
}

std::string SampleRun::config(std::uint64_t revision) const {
  return revision == 1 ? "{\n  \"ops\": [\"norm\", \"min\", \"max\"],\n  \"wg_distribution\": true\n}\n"
                       : "{\"ops\": [\"norm\", \"mean\", \"nans\"], \"monitor_mbs_grad\": true}";
}

std::vector<Record> SampleRun::rows(std::int64_t step) const {
  const std::uint64_t revision = step < kStepsOfARevision ? 1 : 2;
  const Layout of_step = layout(revision);
  std::vector<Record> rows;
  for (std::size_t kind = 0; kind < kRecordKinds; ++kind) {
    Record row;
    row.step = step;
    row.revision = revision;
    row.kind = static_cast<Kind>(kind);
    row.dtype = DType::float32;
    const int micro_steps = has_micro_step(row.kind, of_step) ? 2 : 1;
    for (row.micro_step = 0; row.micro_step < micro_steps; ++row.micro_step) {
      row.target = names_->intern(kTargets[kind], row.kind == Kind::param_origin ? 1 : 0);
      row.shape = names_->intern("[16, 8]");
      row.mask = 0;
      fill(row, of_step);
      row.sequence = rows.size();
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace gradmon
