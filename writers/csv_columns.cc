// SPDX-License-Identifier: Apache-2.0
#include "writers/csv_columns.h"

namespace gradmon {
namespace {

bool holds_tensor_stats(Kind kind) { return kind <= Kind::param_updated; }

bool has_micro_step(Kind kind, const Layout& layout) {
  return kind == Kind::actv || kind == Kind::actv_grad ||
         (kind == Kind::grad_unreduced && layout.micro_step_in_grad_unreduced);
}

}  // namespace

ColumnPlan column_plan(Kind kind, const Layout& layout) {
  ColumnPlan plan;
  if (!holds_tensor_stats(kind)) return plan;
  plan.known = true;
  plan.has_micro_step = has_micro_step(kind, layout);
  plan.ops = layout.ops;
  plan.header = "vpp_stage,name,step,";
  if (plan.has_micro_step) plan.header += "micro_step,";
  for (const Op op : plan.ops) {
    plan.header += name_of(op);
    plan.header += ',';
  }
  plan.header += "shape,dtype\n";
  return plan;
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
