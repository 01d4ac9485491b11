// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/histogram_heat_map.h"

#include <cstdio>
#include <set>
#include <vector>

#include "tools/analyse/rows/event_file.h"
#include "tools/analyse/rows/histogram_row.h"
#include "tools/analyse/value_text.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
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
