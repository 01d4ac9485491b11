// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/find/first_not_finite.h"

#include <utility>

namespace gradmon {

void FirstNotFiniteFinder::note(int rank, Kind kind, const Row& row, const NotFiniteField& found,
                                const std::filesystem::path& file) {
  const StepOrder order = order_of(rank, kind, row);
  const auto of_rank = result_.by_rank.find(rank);
  const bool first_of_rank = of_rank == result_.by_rank.end() || order < of_rank->second.order;
  const bool first_nan =
      found.what == NotFinite::nan && (!result_.first_nan || order < result_.first_nan->order);
  if (!first_of_rank && !first_nan) return;
  NotFinitePlace place;
  place.order = order;
  place.rank = rank;
  place.kind = kind;
  place.vpp_stage = row.vpp_stage;
  place.name = row.name;
  place.micro_step = row.micro_step;
  place.what = found.what;
  place.field = found.field;
  place.value = row.values[found.field];
  place.shape = row.shape;
  place.dtype = row.dtype;
  place.file = file;
  place.line = row.line;
  if (first_nan) result_.first_nan = place;
  if (!result_.first || order < result_.first->order) result_.first = place;
  if (first_of_rank) result_.by_rank[rank] = std::move(place);
}

bool FirstNotFiniteFinder::add(int rank, Kind kind, const Row& row, const std::filesystem::path& file) {
  result_.extent.add(rank, row);
  const NotFiniteField found = not_finite_in(row);
  if (found.what != NotFinite::none) note(rank, kind, row, found, file);
  return !result_.first_nan || row.step - kStepsAfter <= result_.first_nan->order.step;
}

FirstNotFinite find_first_not_finite(const Run& run, Problems& problems) {
  FirstNotFiniteFinder finder;
  each_kind(run, problems, [&](int rank, Kind kind, const std::vector<KindFile>& files) {
    KindRows rows(files, problems);
    for (const Row* row = rows.next(); row != nullptr; row = rows.next()) {
      if (!finder.add(rank, kind, *row, rows.path())) break;
    }
  });
  return finder.result();
}

}  // namespace gradmon
