// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/first_not_finite.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

namespace gradmon {

Phase phase_of(Kind kind, const Row& row) {
  switch (kind) {
    case Kind::param_origin:
    case Kind::exp_avg:
    case Kind::exp_avg_sq:
      return Phase::state;
    case Kind::actv:
    case Kind::attention_hook:
    case Kind::linear_hook:
    case Kind::moe_router_weight_hook:
    case Kind::moe_router_logit_hook:
      return Phase::forward;
    case Kind::actv_grad:
    case Kind::grad_unreduced:
      return Phase::backward;
    case Kind::other:  // a collective call, or a gradient against its momentum
      return row.has(kMgDirectionField) ? Phase::update : Phase::reduction;
    case Kind::grad_reduced:
      return Phase::reduction;
    case Kind::param_updated:
    case Kind::update:
    case Kind::ratio:
      return Phase::update;
    case Kind::scalar:
      return Phase::scalars;
  }
  return Phase::scalars;
}

const char* text_of(Phase phase) {
  switch (phase) {
    case Phase::state:
      return "before the step";
    case Phase::forward:
      return "in the forward pass";
    case Phase::backward:
      return "in the backward pass";
    case Phase::reduction:
      return "after the backward pass";
    case Phase::update:
      return "in the optimizer's step";
    case Phase::scalars:
      return "among the scalars";
  }
  return "";
}

StepOrder order_of(int rank, Kind kind, const Row& row) {
  StepOrder order;
  order.step = row.step;
  order.phase = phase_of(kind, row);
  const bool in_a_pass = order.phase == Phase::forward || order.phase == Phase::backward;
  order.part = static_cast<std::uint8_t>(in_a_pass ? Phase::forward : order.phase);
  // A gradient without a micro step follows the last micro step; a feature of the weights counts as one of
  // the first.
  const bool after_all = order.phase == Phase::backward && row.micro_step < 0;
  order.micro_step = after_all            ? std::numeric_limits<std::int32_t>::max()
                     : row.micro_step < 0 ? 0
                                          : row.micro_step;
  order.file = kind == Kind::other ? 0 : static_cast<std::uint8_t>(static_cast<int>(kind) + 1);
  order.chunk = order.phase == Phase::backward ? -row.vpp_stage : row.vpp_stage;
  order.place = row.place;
  order.rank = rank;
  return order;
}

bool operator<(const StepOrder& a, const StepOrder& b) {
  const auto key = [](const StepOrder& order) {
    return std::tie(order.step, order.part, order.micro_step, order.phase, order.chunk, order.file,
                    order.place, order.rank);
  };
  return key(a) < key(b);
}

namespace {

// "[0]", "[4, 0]"
bool is_empty_tensor(std::string_view shape) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool begins = i > 0 && (shape[i - 1] == '[' || shape[i - 1] == ' ');
    const bool ends = i + 1 < shape.size() && (shape[i + 1] == ']' || shape[i + 1] == ',');
    if (shape[i] == '0' && begins && ends) return true;
  }
  return false;
}

constexpr Field kMean = field_of(Op::mean);
constexpr Field kNorm = field_of(Op::norm);
constexpr Field kMin = field_of(Op::min);
constexpr Field kMax = field_of(Op::max);
constexpr Field kNans = field_of(Op::nans);

bool is_signed_extreme(Field field) { return field == kMin || field == kMax; }

// min, max, and those of magnitudes.
bool is_extreme(Field field) {
  const Fold fold = kStatistics[field].fold;
  return fold == Fold::least || fold == Fold::greatest;
}

bool is_defined(const Row& row, Field field) {
  return row.has(field) && !(is_signed_extreme(field) && row.dtype.substr(0, 13) == "torch.complex");
}

// The first extreme of the row whose value fulfils `holds`; kOps if none does.
template <typename Holds>
Field extreme_that(const Row& row, Holds holds) {
  for (Field field = 0; field < kOps; ++field) {
    if (is_extreme(field) && is_defined(row, field) && holds(field)) return field;
  }
  return kOps;
}

// True if the row rules out a NaN element, given that no statistic that propagates NaN is NaN.
bool excludes_nan(const Row& row) {
  return row.has(kNans) || row.has(kNorm) || extreme_that(row, [](Field) { return true; }) != kOps;
}

bool is_finite(const Row& row, Field field) {
  return is_defined(row, field) && std::isfinite(row.values[field]);
}

// True if the row shows that all elements are finite.
bool has_finite_extremes(const Row& row) {
  if (is_finite(row, kMin) && is_finite(row, kMax)) return true;
  return extreme_that(row, [&](Field f) { return !is_signed_extreme(f) && std::isfinite(row.values[f]); }) !=
         kOps;
}

// Only a NaN element makes a norm or an extreme NaN.
NotFiniteField found_in_elements(const Row& row) {
  if (row.has(kNorm) && std::isnan(row.values[kNorm])) return {NotFinite::nan, kNorm};
  const Field nan = extreme_that(row, [&](Field f) { return std::isnan(row.values[f]); });
  if (nan != kOps) return {NotFinite::nan, nan};
  const Field infinite = extreme_that(row, [&](Field f) { return std::isinf(row.values[f]); });
  if (infinite != kOps) return {NotFinite::infinite, infinite};
  return {};
}

NotFiniteField found_in_sums(const Row& row) {
  for (const Field field : {kNorm, kMean}) {
    if (!row.has(field) || std::isfinite(row.values[field])) continue;
    if (std::isnan(row.values[field]) && !excludes_nan(row)) return {NotFinite::nan, field};
    return {has_finite_extremes(row) ? NotFinite::overflow : NotFinite::infinite, field};
  }
  return {};
}

// Checks values other than statistics of a tensor's elements: entropy, a training scalar …
NotFiniteField found_in_features(const Row& row) {
  for (Field field = kOps; field < kFields; ++field) {
    if (!row.has(field) || std::isfinite(row.values[field])) continue;
    return {std::isnan(row.values[field]) ? NotFinite::nan : NotFinite::infinite, field};
  }
  return {};
}

}  // namespace

NotFiniteField not_finite_in(const Row& row) {
  if (row.has(kNans) && row.values[kNans] > 0) return {NotFinite::nan, kNans};
  if (row.dtype == "torch.bool" || is_empty_tensor(row.shape)) return {};
  for (auto* const found_in : {found_in_elements, found_in_sums, found_in_features}) {
    if (const NotFiniteField found = found_in(row); found.what != NotFinite::none) return found;
  }
  return {};
}

const char* text_of(NotFinite what) {
  switch (what) {
    case NotFinite::nan:
      return "NaN";
    case NotFinite::infinite:
      return "an infinity";
    case NotFinite::overflow:
      return "an overflow";
    case NotFinite::none:
      break;
  }
  return "";
}

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
