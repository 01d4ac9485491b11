// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/not_finite_context.h"

#include <algorithm>
#include <limits>

namespace gradmon {
namespace {

constexpr std::size_t kFilesBefore = 16;  // read for the history

Sample sample_of(const Row& row) {
  Sample sample;
  sample.step = row.step;
  sample.micro_step = row.micro_step;
  sample.vpp_stage = row.vpp_stage;
  sample.name = row.name;
  sample.values = row.values;
  sample.mask = row.mask;
  return sample;
}

bool is_of_tensor(const Row& row, const NotFinitePlace& place) {
  return row.name == place.name && row.vpp_stage == place.vpp_stage && row.micro_step == place.micro_step;
}

// The files with the last steps before the place, and those with the steps after it.
std::vector<KindFile> files_around(const std::vector<KindFile>& files, std::int64_t step) {
  const auto after = std::find_if(files.begin(), files.end(),
                                  [&](const KindFile& file) { return file.name.first_step > step; });
  const auto before = after - std::min<std::ptrdiff_t>(after - files.begin(), kFilesBefore);
  return {before, after + std::min<std::ptrdiff_t>(files.end() - after, kAfter)};
}

// Collects history and neighbours from the rows of the place's rank and kind.
class Around {
 public:
  Around(const NotFinitePlace& place, NotFiniteContext& found) : place_(place), found_(found) {}

  // Returns false if later rows change nothing.
  bool add(const Row& row) {
    if (is_of_tensor(row, place_)) add_to_history(row);
    if (row.step == place_.order.step && row.micro_step == place_.micro_step) add_neighbour(row);
    return after_ < kAfter;
  }
  void end() {
    auto& history = found_.history;
    if (before_ > kBefore)
      history.erase(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(before_ - kBefore));
  }

 private:
  void add_to_history(const Row& row) {
    auto& history = found_.history;
    if (row.step < place_.order.step) ++before_;
    if (row.step > place_.order.step) ++after_;
    history.push_back(sample_of(row));
    if (before_ > 4 * kBefore) {
      history.erase(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(before_ - kBefore));
      before_ = kBefore;
    }
  }
  void add_neighbour(const Row& row) {
    auto& neighbours = found_.neighbours;
    const bool is_place = is_of_tensor(row, place_) && !seen_;
    if (seen_ && neighbours.size() > found_.place + kNeighbours) return;
    if (!seen_ && neighbours.size() > kNeighbours) neighbours.erase(neighbours.begin());
    neighbours.push_back(sample_of(row));
    if (!is_place) return;
    seen_ = true;
    found_.place = neighbours.size() - 1;
  }

  const NotFinitePlace& place_;
  NotFiniteContext& found_;
  std::size_t before_ = 0;
  std::size_t after_ = 0;
  bool seen_ = false;
};

void look_around(const std::vector<KindFile>& files, const NotFinitePlace& place, NotFiniteContext& found,
                 Problems& problems) {
  const std::vector<KindFile> near = files_around(files, place.order.step);
  KindRows rows(near, problems);
  Around around(place, found);
  for (const Row* row = rows.next(); row != nullptr && around.add(*row); row = rows.next()) {
  }
  around.end();
}

}  // namespace

NotFiniteContext context_of(const Run& run, const FirstNotFinite& first_found, Problems& problems) {
  const NotFinitePlace& place = *first_found.first;
  NotFiniteContext found;
  const std::int64_t first = place.order.step;
  const std::int64_t last =
      std::min(first, std::numeric_limits<std::int64_t>::max() - FirstNotFiniteFinder::kStepsAfter) +
      FirstNotFiniteFinder::kStepsAfter;
  each_kind(run, problems, [&](int rank, Kind kind, const std::vector<KindFile>& files) {
    const bool same_kind = kind == place.kind;
    if (same_kind && rank == place.rank) look_around(files, place, found, problems);
    const std::vector<KindFile> near = files_of_steps(files, first, last);
    KindRows rows(near, problems);
    for (const Row* row = rows.next(); row != nullptr && row->step <= last; row = rows.next()) {
      if (row->step < first) continue;
      const bool not_finite = first_found.counts(rank, kind, *row);
      NotFiniteContext::Count& count = found.spread[row->step];
      ++count.rows;
      if (not_finite) ++count.not_finite;
      if (same_kind && rank != place.rank && row->step == first && is_of_tensor(*row, place))
        found.ranks[rank] = not_finite;
    }
  });
  return found;
}

}  // namespace gradmon
