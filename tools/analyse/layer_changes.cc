// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/layer_changes.h"

#include <algorithm>
#include <utility>

namespace gradmon {
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
