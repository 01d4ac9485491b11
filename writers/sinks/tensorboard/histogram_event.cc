// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/histogram_event.h"

#include "writers/sinks/tensorboard/event.pb.h"
#include "writers/sinks/tensorboard/record_framing.h"

namespace gradmon {
namespace {

// The position of edge 0 … kBins. The middle edge is exactly 0.
double edge(std::size_t number) { return 2.0 * static_cast<double>(number) / kBins - 1.0; }

}  // namespace

std::string histogram_record(std::string_view tag, const BinCounts& counts, Step step, double wall_time) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_step(step.value);
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(std::string(tag));
  tensorboard::HistogramProto& histogram = *value.mutable_histo();
  double total = 0, sum = 0, sum_squares = 0;
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    const auto count = static_cast<double>(counts[bin]);
    const double centre = (edge(bin) + edge(bin + 1)) / 2;
    if (count > 0 && total == 0) histogram.set_min(edge(bin));
    if (count > 0) histogram.set_max(edge(bin + 1));
    total += count;
    sum += count * centre;
    sum_squares += count * centre * centre;
    histogram.add_bucket_limit(edge(bin + 1));
    histogram.add_bucket(count);
  }
  histogram.set_num(total);
  histogram.set_sum(sum);
  histogram.set_sum_squares(sum_squares);
  return record_of(event.SerializeAsString());
}

}  // namespace gradmon
