// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/value_text.h"

#include <cmath>
#include <cstdio>
#include <set>

#include "tools/analyse/run_choice.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

std::string value_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

OrderedJson value_json(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(value_text(value));
}

std::string layer_text(std::int32_t vpp_stage, const std::string& name) {
  const std::string shown = name.empty() ? "(root)" : name;
  return vpp_stage == 0 ? shown : std::to_string(vpp_stage) + ':' + shown;
}

std::string micro_step_text(std::int32_t micro_step) {
  return micro_step < 0 ? "-" : std::to_string(micro_step);
}

std::vector<Field> fields_of(const std::vector<Sample>& samples) {
  std::uint32_t mask = 0;
  for (const Sample& sample : samples) mask |= sample.mask;
  std::vector<Field> fields;
  for (Field field = 0; field < kFields; ++field) {
    if ((mask >> field & 1U) != 0) fields.push_back(field);
  }
  return fields;
}

OrderedJson to_json(const Sample& sample) {
  OrderedJson json = {{"step", sample.step},
                      {"micro_step", step_or_null(sample.micro_step)},
                      {"vpp_stage", sample.vpp_stage},
                      {"name", sample.name}};
  for (Field field = 0; field < kFields; ++field) {
    if ((sample.mask >> field & 1U) != 0) json[name_of_field(field)] = value_json(sample.values[field]);
  }
  return json;
}

namespace {

constexpr std::size_t kMostLeftOut = 3;  // named in the text
constexpr std::size_t kMostRanks = 10;   // with their own first value, in the text

using Align = TextTable::Align;

// `mark`: the index of the sample to mark.
std::string table_of(const std::vector<Sample>& samples, const char* title, std::size_t mark) {
  const bool by_step = std::string(title) == "step";
  std::vector<TextTable::Column> columns{{"", Align::left}, {title, by_step ? Align::right : Align::left}};
  const std::vector<Field> fields = fields_of(samples);
  for (const Field field : fields) columns.push_back({name_of_field(field), Align::right});
  TextTable table(std::move(columns));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    std::vector<std::string> cells{i == mark ? ">" : "", by_step ? std::to_string(sample.step)
                                                                 : layer_text(sample.vpp_stage, sample.name)};
    for (const Field field : fields)
      cells.push_back((sample.mask >> field & 1U) != 0 ? value_text(sample.values[field]) : "");
    table.add(cells);
  }
  return table.text();
}

std::size_t index_of_step(const std::vector<Sample>& history, std::int64_t step) {
  for (std::size_t i = 0; i < history.size(); ++i) {
    if (history[i].step == step) return i;
  }
  return history.size();
}

std::string details_of(const NotFinitePlace& place) {
  std::string text = "  " + std::string(name_of_field(place.field)) + " " + value_text(place.value);
  if (!place.shape.empty()) text += ", shape " + printable(place.shape);
  if (!place.dtype.empty()) text += ", " + printable(place.dtype);
  return text + "\n  " + printable(place.file.string()) + ":" + std::to_string(place.line) + "\n";
}

std::string other_ranks(const std::map<int, bool>& ranks) {
  std::vector<int> finite, not_finite;
  for (const auto& [rank, is_not_finite] : ranks) (is_not_finite ? not_finite : finite).push_back(rank);
  std::string text;
  if (!finite.empty()) text += "  finite on " + rank_ranges(finite) + "\n";
  if (!not_finite.empty()) text += "  not finite on " + rank_ranges(not_finite) + "\n";
  return text.empty() ? "" : "\nthe same tensor and step on other ranks\n" + text;
}

std::string firsts_of_ranks(const std::map<int, NotFinitePlace>& by_rank) {
  if (by_rank.size() < 2) return "";
  std::string text = "\nthe first one of each rank\n";
  std::size_t shown = 0;
  for (const auto& [rank, place] : by_rank) {
    if (++shown > kMostRanks) break;
    text += "  " + text_of(place) + "\n";
  }
  if (by_rank.size() > kMostRanks)
    text += "  … and " + std::to_string(by_rank.size() - kMostRanks) + " more ranks (--json shows all)\n";
  return text;
}

std::string spread_text(const std::map<std::int64_t, NotFiniteContext::Count>& spread) {
  TextTable table(
      {{"", Align::left}, {"step", Align::right}, {"not finite", Align::right}, {"rows", Align::right}});
  for (const auto& [step, count] : spread)
    table.add({"", std::to_string(step), std::to_string(count.not_finite), std::to_string(count.rows)});
  return "\nhow it spreads, over all ranks and kinds\n" + table.text();
}

const char* word_of(NotFinite what) {
  return what == NotFinite::nan ? "nan" : what == NotFinite::overflow ? "overflow" : "inf";
}

}  // namespace

std::string text_of(const NotFinitePlace& place) {
  std::string text = std::string(text_of(place.what)) + " in " +
                     printable(layer_text(place.vpp_stage, place.name)) + " (" + name_of(place.kind) +
                     "), step " + std::to_string(place.order.step);
  if (place.micro_step >= 0) text += ", micro step " + std::to_string(place.micro_step);
  return text + ", " + text_of(place.order.phase) + ", rank " + std::to_string(place.rank);
}

std::string first_text(const Run& run, const FirstReport& report) {
  const FirstNotFinite& found = report.first;
  std::string text = text_of(run) + "\n";
  const std::string left_out = left_out_text(found);
  if (!found.first) {
    text += left_out.empty() ? "all values are finite: " : "all other values are finite: ";
    return text + text_of(found.extent) + "\n" + left_out;
  }
  const NotFinitePlace& place = *found.first;
  const NotFiniteContext& around = report.around;
  text += "\nthe first value that is not finite\n  " + text_of(place) + "\n" + details_of(place);
  if (found.first_nan && place.what != NotFinite::nan)
    text += "\nthe first NaN\n  " + text_of(*found.first_nan) + "\n" + details_of(*found.first_nan);
  text += "\nthe same tensor, on rank " + std::to_string(place.rank) + "\n" +
          table_of(around.history, "step", index_of_step(around.history, place.order.step));
  text += "\nthe rows before and after it in step " + std::to_string(place.order.step) + "\n" +
          table_of(around.neighbours, "name", around.place);
  text += other_ranks(around.ranks) + firsts_of_ranks(found.by_rank) + spread_text(around.spread);
  return left_out.empty() ? text : text + "\n" + left_out;
}

std::string left_out_text(const FirstNotFinite& found) {
  std::set<std::string> tensors;
  for (const auto& [_, place] : found.always_infinite)
    tensors.insert(printable(layer_text(place.vpp_stage, place.name)) + " (" + name_of(place.kind) + ")");
  std::string text;
  std::size_t shown = 0;
  for (const std::string& tensor : tensors) {
    if (shown++ < kMostLeftOut) text += (text.empty() ? "" : ", ") + tensor;
  }
  if (shown > kMostLeftOut) text += " and " + std::to_string(shown - kMostLeftOut) + " more";
  if (text.empty()) return "";
  return "left out, infinite from the first collected step on, as attention masks are: " + text + "\n";
}

OrderedJson left_out_json(const FirstNotFinite& found) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [_, place] : found.always_infinite) list.push_back(to_json(place));
  return list;
}

OrderedJson to_json(const NotFinitePlace& place) {
  return {{"step", place.order.step},
          {"micro_step", step_or_null(place.micro_step)},
          {"phase", text_of(place.order.phase)},
          {"rank", place.rank},
          {"kind", name_of(place.kind)},
          {"vpp_stage", place.vpp_stage},
          {"name", place.name},
          {"what", word_of(place.what)},
          {"statistic", name_of_field(place.field)},
          {"value", value_json(place.value)},
          {"shape", text_or_null(place.shape)},
          {"dtype", text_or_null(place.dtype)},
          {"file", place.file.string()},
          {"line", place.line}};
}

OrderedJson first_json(const Run& run, const FirstReport& report, const Problems& problems) {
  const auto place_or_null = [](const std::optional<NotFinitePlace>& place) {
    return place ? to_json(*place) : OrderedJson(nullptr);
  };
  const auto list_of = [](const std::vector<Sample>& samples) {
    OrderedJson list = OrderedJson::array();
    for (const Sample& sample : samples) list.push_back(to_json(sample));
    return list;
  };
  OrderedJson by_rank = OrderedJson::array();
  for (const auto& [rank, place] : report.first.by_rank) by_rank.push_back(to_json(place));
  OrderedJson ranks = OrderedJson::array();
  for (const auto& [rank, not_finite] : report.around.ranks)
    ranks.push_back({{"rank", rank}, {"finite", !not_finite}});
  OrderedJson spread = OrderedJson::array();
  for (const auto& [step, count] : report.around.spread)
    spread.push_back({{"step", step}, {"not_finite", count.not_finite}, {"rows", count.rows}});
  return {{"schema_version", kJsonSchemaVersion},
          {"run", to_json(run)},
          {"read", to_json(report.first.extent)},
          {"first", place_or_null(report.first.first)},
          {"first_nan", place_or_null(report.first.first_nan)},
          {"by_rank", std::move(by_rank)},
          {"history", list_of(report.around.history)},
          {"neighbours", list_of(report.around.neighbours)},
          {"other_ranks", std::move(ranks)},
          {"spread", std::move(spread)},
          {"always_infinite", left_out_json(report.first)},
          {"left_out", to_json(problems)}};
}

}  // namespace gradmon
