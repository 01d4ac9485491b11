// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/run_heat_map.h"

#include <cstdio>
#include <set>
#include <vector>

#include "tools/analyse/rows/histogram_rows.h"
#include "tools/analyse/rows/row.h"
#include "tools/analyse/value_text.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostRows = 256;
constexpr std::size_t kMostColumns = 512;
// Cells take 4 bytes: more layers than this get fewer columns.
constexpr std::size_t kMostCells = std::size_t{32} << 20;

// The kinds of the run, by rank.
std::set<Kind> kinds_of(const Run& run, Problems& problems) {
  std::set<Kind> kinds;
  each_kind(run, problems, [&](int, Kind kind, const std::vector<KindFile>&) { kinds.insert(kind); });
  return kinds;
}

std::string list_of(const std::set<Kind>& kinds) {
  std::string list;
  for (const Kind kind : kinds) list += (list.empty() ? "" : ", ") + std::string(name_of(kind));
  return list.empty() ? "none" : list;
}

// Collects the values of one kind.
class Collector {
 public:
  explicit Collector(const HeatMapRequest& request) : request_(request) {
    if (!request.field.empty()) field_ = field_named(request.field);
  }

  void add(const Row& row) {
    ++rows_;
    if (!request_.target.empty() && !is_target(request_.target, row.name)) return;
    mask_ |= row.mask;
    if (!field_) field_ = first_field(row);
    const auto name = names_.id_of(row.vpp_stage, row.name);
    if (!field_ || !row.has(*field_) || !name) return;
    make_builder_smaller();
    builder_.add(*name, row.step, row.values[*field_]);
    has_values_ = true;
  }

  tl::expected<HeatMap, std::string> build(Kind kind, const std::string& of) const {
    if (!has_values_) return tl::unexpected(why_nothing(kind));
    std::vector<std::string> labels;
    for (std::uint32_t id = 0; id < names_.size(); ++id)
      labels.push_back(printable(layer_text(names_.vpp_stage(id), names_.name(id))));
    HeatMap map = builder_.build(labels);
    map.title = std::string(name_of_field(*field_)) + " of " + name_of(kind) + ", " + of;
    return map;
  }

 private:
  static std::optional<Field> first_field(const Row& row) {
    if (row.has(field_of(Op::norm))) return field_of(Op::norm);
    for (Field field = 0; field < kFields; ++field) {
      if (row.has(field)) return field;
    }
    return std::nullopt;
  }

  // Halves the columns while all layers together would have more than kMostCells.
  void make_builder_smaller() {
    while (columns_ > 2 && names_.size() * columns_ > kMostCells) {
      columns_ /= 2;
      builder_.limit_columns(columns_);
    }
  }

  std::string why_nothing(Kind kind) const {
    if (rows_ == 0) return "there are no rows of " + std::string(name_of(kind));
    if (mask_ == 0)
      return "no layer matches --target " + request_.target + ", of " + std::to_string(rows_) + " rows";
    std::string there;
    for (Field field = 0; field < kFields; ++field) {
      if ((mask_ >> field & 1U) != 0)
        there += (there.empty() ? "" : ", ") + std::string(name_of_field(field));
    }
    return std::string(name_of(kind)) + " has no values of --op " + request_.field + "; it has " + there;
  }

  const HeatMapRequest& request_;
  NameIndex names_;
  std::size_t columns_ = kMostColumns;
  HeatMapBuilder builder_{kMostRows, kMostColumns};
  std::optional<Field> field_;
  std::uint64_t rows_ = 0;
  std::uint32_t mask_ = 0;
  bool has_values_ = false;
};

}  // namespace

bool is_target(std::string_view target, std::string_view name) {
  if (target.find_first_of("*?") == std::string_view::npos)
    return name.substr(0, target.size()) == target &&
           (name.size() == target.size() || name[target.size()] == '.');
  // The last "*" may take more if the rest does not match.
  std::size_t at = 0, in_target = 0, star = std::string_view::npos, after_star = 0;
  while (at < name.size()) {
    if (in_target < target.size() && target[in_target] == '*') {
      star = in_target++;
      after_star = at;
    } else if (in_target < target.size() && (target[in_target] == '?' || target[in_target] == name[at])) {
      ++in_target;
      ++at;
    } else if (star != std::string_view::npos) {
      in_target = star + 1;
      at = ++after_star;
    } else {
      return false;
    }
  }
  return target.find_first_not_of('*', in_target) == std::string_view::npos;
}

tl::expected<HeatMap, std::string> heat_map_of(const Run& run, const HeatMapRequest& request,
                                               Problems& problems) {
  const std::set<Kind> kinds = kinds_of(run, problems);
  if (kinds.empty()) return tl::unexpected(std::string("there are no CSV files of gradmon in the run"));
  const Kind by_default = kinds.count(Kind::grad_reduced) > 0 ? Kind::grad_reduced : *kinds.begin();
  const Kind kind = kind_named(request.kind).value_or(by_default);
  if (kinds.count(kind) == 0)
    return tl::unexpected("there are no files of " + std::string(name_of(kind)) +
                          "; there are: " + list_of(kinds));
  Collector collector(request);
  std::set<int> ranks;
  each_kind(run, problems, [&](int rank, Kind one, const std::vector<KindFile>& files) {
    if (one != kind || (request.rank && *request.rank != rank)) return;
    ranks.insert(rank);
    KindRows rows(files, problems);
    for (const Row* row = rows.next(); row != nullptr; row = rows.next()) collector.add(*row);
  });
  if (ranks.empty())
    return tl::unexpected("there is no rank " + std::to_string(request.rank.value_or(0)) + " in the run");
  const std::string of = ranks.size() == 1 ? "rank " + std::to_string(*ranks.begin())
                                           : "largest of " + std::to_string(ranks.size()) + " ranks";
  return collector.build(kind, of + ", run " + printable(run.id));
}

namespace {

constexpr std::size_t kHistogramColumns = 512;
constexpr std::size_t kMostNamed = 3;  // parameters in a message

// "0.93 to 1.00", from the top.
std::vector<std::string> bin_labels() {
  std::vector<std::string> labels;
  for (std::size_t row = 0; row < kBins; ++row) {
    const double lower = 2.0 * static_cast<double>(kBins - 1 - row) / kBins - 1;
    char label[32];
    std::snprintf(label, sizeof label, "%.2f to %.2f", lower, lower + 2.0 / kBins);
    labels.emplace_back(label);
  }
  return labels;
}

// Collects the histograms of one kind.
class HistogramCollector {
 public:
  HistogramCollector(const HeatMapRequest& request, Kind kind) : request_(request), kind_(kind) {}

  void add(const HistogramRow& row) {
    if (row.kind != kind_ || (request_.rank && *request_.rank != row.rank)) return;
    ++histograms_;
    if (!request_.target.empty() && !is_target(request_.target, row.name)) return;
    names_.insert(layer_text(row.vpp_stage, row.name));
    ranks_.insert(row.rank);
    for (std::size_t bin = 0; bin < kBins; ++bin) builder_.add(kBins - 1 - bin, row.step, row.counts[bin]);
  }

  tl::expected<HeatMap, std::string> build(const std::string& run_id) const {
    if (names_.size() != 1) return tl::unexpected(why_not_one());
    HeatMap map = builder_.build(bin_labels());
    const std::string ranks = ranks_.size() == 1 ? "rank " + std::to_string(*ranks_.begin())
                                                 : "largest of " + std::to_string(ranks_.size()) + " ranks";
    map.title = std::string("values of ") + name_of(kind_) + " of " + printable(*names_.begin()) + ", " +
                ranks + ", run " + printable(run_id);
    return map;
  }

 private:
  std::string why_not_one() const {
    const std::string kind = name_of(kind_);
    if (histograms_ == 0)
      return "there are no histograms of " + kind +
             "; \"ur_distribution\": true with \"format\": \"tensorboard\" makes them";
    if (names_.empty())
      return "no parameter matches --target " + request_.target + ", of " + std::to_string(histograms_) +
             " histograms";
    std::string named;
    std::size_t left = kMostNamed;
    for (const std::string& name : names_) {
      if (left-- == 0) break;
      named += (named.empty() ? "" : ", ") + name;
    }
    return "the histograms of " + kind + " are of " + std::to_string(names_.size()) + " parameters (" +
           named + (names_.size() > kMostNamed ? ", ..." : "") + "): name one with --target";
  }

  const HeatMapRequest& request_;
  const Kind kind_;
  HeatMapBuilder builder_{kBins, kHistogramColumns};
  std::uint64_t histograms_ = 0;
  std::set<std::string> names_;  // with the stage; bounded by the number of the model's parameters
  std::set<int> ranks_;
};

}  // namespace

tl::expected<HeatMap, std::string> histogram_heat_map_of(const Run& run, const HeatMapRequest& request,
                                                         Problems& problems) {
  HistogramCollector collector(request, kind_named(request.kind).value_or(Kind::update));
  for (const RankDirectory& rank : run.ranks) {
    for (const auto& path : event_files_of(rank.path, problems)) {
      EventFile file(path, problems);
      for (std::string_view event; file.next(event);) {
        if (const auto row = histogram_row_of(event, rank.rank)) collector.add(*row);
      }
    }
  }
  return collector.build(run.id);
}

}  // namespace gradmon
