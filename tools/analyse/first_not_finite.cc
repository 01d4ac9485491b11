// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/first_not_finite.h"

#include <utility>

namespace gradmon {

namespace {

NotFinitePlace place_of(int rank, Kind kind, const Row& row, const NotFiniteField& found,
                        const std::filesystem::path& file) {
  NotFinitePlace place;
  place.order = order_of(rank, kind, row);
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
  return place;
}

}  // namespace

bool FirstNotFinite::counts(int rank, Kind kind, const Row& row) const {
  const NotFinite what = not_finite_in(row).what;
  return what != NotFinite::none &&
         (what != NotFinite::infinite ||
          always_infinite.count({rank, kind, row.vpp_stage, std::string(row.name)}) == 0);
}

void FirstNotFiniteFinder::note(const NotFinitePlace& place) {
  if (place.what == NotFinite::nan && (!result_.first_nan || place.order < result_.first_nan->order))
    result_.first_nan = place;
  if (!result_.first || place.order < result_.first->order) result_.first = place;
  const auto of_rank = result_.by_rank.find(place.rank);
  if (of_rank == result_.by_rank.end() || place.order < of_rank->second.order)
    result_.by_rank[place.rank] = place;
}

bool FirstNotFiniteFinder::add(int rank, Kind kind, const Row& row, const std::filesystem::path& file) {
  if (rank != rank_ || kind != kind_) first_step_ = row.step;
  rank_ = rank;
  kind_ = kind;
  result_.extent.add(rank, row);
  const NotFiniteField found = not_finite_in(row);
  const bool infinite = found.what == NotFinite::infinite;
  auto& always = result_.always_infinite;
  if (found.what == NotFinite::none && always.empty()) return goes_on(row);
  const auto known = always.find({rank, kind, row.vpp_stage, std::string(row.name)});
  if (infinite && row.step == first_step_ && known == always.end()) {
    always.emplace(FirstNotFinite::Tensor{rank, kind, row.vpp_stage, row.name},
                   place_of(rank, kind, row, found, file));
  } else if (known == always.end() || !infinite) {
    if (found.what != NotFinite::none) note(place_of(rank, kind, row, found, file));
    if (known != always.end() && found.what != NotFinite::nan) {
      note(known->second);
      always.erase(known);
    }
  }
  return goes_on(row);
}

bool FirstNotFiniteFinder::goes_on(const Row& row) const {
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
