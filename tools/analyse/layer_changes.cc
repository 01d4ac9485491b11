// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/layer_changes.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gradmon {
namespace {

constexpr double kNothing = 1e-6;  // of the largest size before

template <std::size_t N>
double median_of(std::array<double, N> values, std::size_t count) {
  std::sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
  return values[count / 2];
}

}  // namespace

std::optional<double> size_of(const Row& row) {
  if (row.has(field_of(Op::norm))) return std::fabs(row.values[field_of(Op::norm)]);
  std::optional<double> extreme;
  for (Field field = 0; field < kOps; ++field) {
    const Fold fold = kStatistics[field].fold;
    if (!row.has(field) || (fold != Fold::least && fold != Fold::greatest)) continue;
    const double size = std::fabs(row.values[field]);
    if (!extreme || std::isnan(size) || size > *extreme) extreme = size;
    if (std::isnan(*extreme)) return extreme;
  }
  if (extreme) return extreme;
  for (const Field field : {kKernelNormField, field_of(Op::mean)}) {
    if (row.has(field)) return std::fabs(row.values[field]);
  }
  return std::nullopt;
}

void LayerSeries::add(std::int64_t step, double size) {
  if (!std::isfinite(size) || step < step_) return;
  if (step > step_) {
    end_step();
    step_ = step;
    step_size_ = size;
  }
  step_size_ = std::max(step_size_, size);
}

void LayerSeries::end() { end_step(); }

void LayerSeries::end_step() {
  if (step_ < 0 || step_ == last_step_) return;
  const double floor = kNothing * largest_;
  if (steps_ > 0 && largest_ > 0) {
    const double before = std::max(last_size_, floor);
    const double after = std::max(step_size_, floor);
    const double factor = std::max(after / before, before / after);
    if (factor > largest_change_.factor)
      largest_change_ = {factor, last_step_, step_, last_size_, step_size_};
  }
  if (step_size_ > floor) {
    dead_steps_ = 0;
  } else if (++dead_steps_ == 1) {
    dead_since_ = step_;
  }
  if (steps_ < kEarly) early_[steps_] = step_size_;
  late_[steps_ % kLate] = step_size_;
  largest_ = std::max(largest_, step_size_);
  last_size_ = step_size_;
  last_step_ = step_;
  ++steps_;
}

double LayerSeries::growth() const {
  if (steps_ <= kLate) return 1;
  const double early = median_of(early_, std::min<std::size_t>(kEarly, steps_ - kLate));
  const double late = median_of(late_, kLate);
  return early > 0 ? late / early : 1;
}

namespace {

bool has_layers(Kind kind) { return kind != Kind::scalar && kind != Kind::other; }

class Layers {
 public:
  bool add(std::int32_t vpp_stage, std::string_view name, std::int64_t step, double size) {
    const auto id = names_.id_of(vpp_stage, name);
    if (!id) return false;
    if (*id >= series_.size()) series_.resize(names_.size());
    series_[*id].add(step, size);
    return true;
  }

  // Call it after the last row of a kind and rank.
  void end_kind(int rank, Kind kind) {
    worst_.resize(names_.size());
    for (std::uint32_t id = 0; id < series_.size(); ++id) {
      LayerSeries& series = series_[id];
      series.end();
      if (series.steps() == 0) continue;
      take(rank, kind, series, worst_[id]);
    }
    series_.clear();
  }

  void report(LayerChanges& into) const {
    into.layers = worst_.size();
    for (std::uint32_t id = 0; id < worst_.size(); ++id) {
      const Worst& worst = worst_[id];
      const std::string layer = names_.label(id);
      if (worst.change.change.step >= 0) {
        into.largest.push_back(worst.change);
        into.largest.back().layer = layer;
      }
      if (worst.dead.ranks > 0) {
        into.dead.push_back(worst.dead);
        into.dead.back().layer = layer;
      }
      if (worst.exploding.growth >= kExplodingGrowth) {
        into.exploding.push_back(worst.exploding);
        into.exploding.back().layer = layer;
      }
    }
  }

 private:
  struct Worst {
    LayerChanges::Change change;
    LayerChanges::Dead dead;
    LayerChanges::Exploding exploding;
    int last_dead_rank = -1;
  };

  static void take(int rank, Kind kind, const LayerSeries& series, Worst& worst) {
    if (series.largest_change().factor > worst.change.change.factor)
      worst.change = {"", kind, rank, series.largest_change()};
    if (series.growth() > worst.exploding.growth)
      worst.exploding = {"", kind, rank, series.growth(), series.last_size()};
    if (series.dead_since() < 0) return;
    LayerChanges::Dead& dead = worst.dead;
    if (dead.ranks == 0) dead = {"", kind, series.dead_since(), 0, rank};
    dead.since = std::min(dead.since, series.dead_since());
    if (worst.last_dead_rank != rank) ++dead.ranks;
    worst.last_dead_rank = rank;
  }

  NameIndex names_;
  std::vector<LayerSeries> series_;  // by id; of the current kind and rank
  std::vector<Worst> worst_;         // by id
};

template <typename Entry, typename Key>
void order(std::vector<Entry>& entries, Key key) {
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
}

}  // namespace

LayerChanges find_layer_changes(const Run& run, Problems& problems) {
  Layers layers;
  FirstNotFiniteFinder finder;
  each_kind(run, problems, [&](int rank, Kind kind, const std::vector<KindFile>& files) {
    KindRows rows(files, problems);
    for (const Row* row = rows.next(); row != nullptr; row = rows.next()) {
      finder.add(rank, kind, *row, rows.path());
      const auto size = has_layers(kind) ? size_of(*row) : std::nullopt;
      if (size && !layers.add(row->vpp_stage, row->name, row->step, *size))
        problems.add(rows.path(), row->line, "more than a million names; the row is left out");
    }
    layers.end_kind(rank, kind);
  });
  LayerChanges changes;
  layers.report(changes);
  order(changes.largest, [](const auto& entry) { return -entry.change.factor; });
  order(changes.dead, [](const auto& entry) { return entry.since; });
  order(changes.exploding, [](const auto& entry) { return -entry.growth; });
  changes.not_finite = finder.result();
  return changes;
}

}  // namespace gradmon
