// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <iterator>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include "tools/analyse/rows/row.h"

namespace gradmon {

double relative_difference(double a, double b) {
  if ((std::isnan(a) && std::isnan(b)) || a == b) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  const double larger = std::max(std::fabs(a), std::fabs(b));
  return std::fabs(a / larger - b / larger);  // a - b may overflow
}

bool parts(double a, double b, const Tolerance& tolerance) {
  if (relative_difference(a, b) <= tolerance.relative) return false;
  return !(std::fabs(a - b) <= tolerance.absolute);
}

namespace {

// A row of StepReader, without its texts.
struct StepRow {
  std::uint32_t name = 0;  // in the NameIndex
  std::int32_t micro_step = -1;
  std::uint32_t repetition = 0;  // earlier rows of the step with this name and micro step
  std::array<double, kFields> values{};
  std::uint32_t mask = 0;
  StepOrder order;
  std::uint64_t line = 0;
  std::filesystem::path const* file = nullptr;  // valid until the next step is read
};
bool operator<(const StepRow& a, const StepRow& b);

// The rows of one kind and rank, step by step. One thread.
class StepReader {
 public:
  // All must outlive this object.
  StepReader(int rank, Kind kind, const std::vector<KindFile>& files, NameIndex& names, Problems& problems);
  StepReader(const StepReader&) = delete;
  StepReader& operator=(const StepReader&) = delete;

  // Returns false at the end.
  bool next();
  std::int64_t step() const { return step_; }
  // Ascending by name, micro step and repetition.
  const std::vector<StepRow>& rows() const { return rows_; }

 private:
  void keep(const Row& row);
  void count_repetitions();

  const int rank_;
  const Kind kind_;
  NameIndex& names_;
  Problems& problems_;
  KindRows source_;
  const Row* ahead_ = nullptr;  // the first row of the next step; null at the end
  std::int64_t step_ = -1;
  std::vector<StepRow> rows_;
  std::deque<std::filesystem::path> files_;  // of the step's rows; entries never move
};

constexpr std::size_t kMaxRowsOfAStep = 4'000'000;

auto key_of(const StepRow& row) { return std::tie(row.name, row.micro_step, row.repetition); }

bool operator<(const StepRow& a, const StepRow& b) { return key_of(a) < key_of(b); }

StepReader::StepReader(int rank, Kind kind, const std::vector<KindFile>& files, NameIndex& names,
                       Problems& problems)
    : rank_(rank), kind_(kind), names_(names), problems_(problems), source_(files, problems) {
  ahead_ = source_.next();
}

void StepReader::keep(const Row& row) {
  const auto name = names_.id_of(row.vpp_stage, row.name);
  if (!name || rows_.size() == kMaxRowsOfAStep) {
    problems_.add(source_.path(), row.line,
                  name ? "more than 4 million rows of a step; the row is left out"
                       : "more than a million names; the row is left out");
    return;
  }
  StepRow kept;
  kept.name = *name;
  kept.micro_step = row.micro_step;
  kept.values = row.values;
  kept.mask = row.mask;
  kept.order = order_of(rank_, kind_, row);
  kept.line = row.line;
  if (files_.empty() || files_.back().native() != source_.path().native()) files_.push_back(source_.path());
  kept.file = &files_.back();
  rows_.push_back(kept);
}

void StepReader::count_repetitions() {
  std::stable_sort(rows_.begin(), rows_.end());
  for (std::size_t i = 1; i < rows_.size(); ++i) {
    const bool same = rows_[i].name == rows_[i - 1].name && rows_[i].micro_step == rows_[i - 1].micro_step;
    if (same) rows_[i].repetition = rows_[i - 1].repetition + 1;
  }
}

bool StepReader::next() {
  rows_.clear();
  files_.clear();
  if (ahead_ == nullptr) return false;
  step_ = ahead_->step;
  for (; ahead_ != nullptr && ahead_->step == step_; ahead_ = source_.next()) keep(*ahead_);
  count_repetitions();
  return true;
}

bool is_of_the_clock(const std::string& scalar) {
  constexpr std::string_view all[] = {"iteration-time", "throughput", "throughput_linearity",
                                      "B-samples-per-day", "model-flops-throughput-per-device"};
  return std::find(std::begin(all), std::end(all), scalar) != std::end(all);
}

using Files = std::map<std::pair<int, Kind>, std::vector<KindFile>>;

Files files_of(const Run& run, Problems& problems) {
  Files files;
  each_kind(run, problems, [&](int rank, Kind kind, const std::vector<KindFile>& list) {
    auto& all = files[{rank, kind}];
    all.insert(all.end(), list.begin(), list.end());
  });
  return files;
}

// Compares two runs, one rank and kind after the other.
class Comparison {
 public:
  Comparison(const Tolerance& tolerance, Problems& problems) : tolerance_(tolerance), problems_(problems) {}

  void compare(int rank, Kind kind, const std::vector<KindFile>& a, const std::vector<KindFile>& b) {
    StepReader from_a(rank, kind, a, names_, problems_);
    StepReader from_b(rank, kind, b, names_, problems_);
    bool has_a = from_a.next();
    bool has_b = from_b.next();
    while (has_a || has_b) {
      const bool take_a = has_a && (!has_b || from_a.step() <= from_b.step());
      const bool take_b = has_b && (!has_a || from_b.step() <= from_a.step());
      if (take_a && take_b) {
        compare_step(rank, kind, from_a.rows(), from_b.rows());
      } else {
        for (const StepRow& row : (take_a ? from_a : from_b).rows())
          only(take_a ? found_.only_a : found_.only_b, rank, kind, row);
      }
      if (take_a) has_a = from_a.next();
      if (take_b) has_b = from_b.next();
    }
  }

  Divergence take() { return std::move(found_); }

 private:
  void only(Divergence::Only& only, int rank, Kind kind, const StepRow& row) const {
    if (only.rows++ > 0 && only.step <= row.order.step) return;
    only.step = row.order.step;
    only.what =
        std::string(name_of(kind)) + " of \"" + names_.label(row.name) + "\" on rank " + std::to_string(rank);
  }

  void compare_step(int rank, Kind kind, const std::vector<StepRow>& a, const std::vector<StepRow>& b) {
    auto in_a = a.begin();
    auto in_b = b.begin();
    while (in_a != a.end() || in_b != b.end()) {
      if (in_b == b.end() || (in_a != a.end() && *in_a < *in_b)) {
        only(found_.only_a, rank, kind, *in_a++);
      } else if (in_a == a.end() || *in_b < *in_a) {
        only(found_.only_b, rank, kind, *in_b++);
      } else {
        compare_rows(rank, kind, *in_a++, *in_b++);
      }
    }
  }

  void compare_rows(int rank, Kind kind, const StepRow& a, const StepRow& b) {
    if (kind == Kind::scalar && is_of_the_clock(names_.label(a.name))) return;
    if ((a.mask & b.mask) == 0) {
      ++found_.without_common;
      return;
    }
    Divergence::StepCount& count = found_.steps[a.order.step];
    ++count.compared;
    ++found_.compared;
    Parting parting;
    parting.difference = -1;
    for (Field field = 0; field < kFields; ++field) {
      if (((a.mask & b.mask) >> field & 1U) == 0 || !parts(a.values[field], b.values[field], tolerance_))
        continue;
      const double difference = relative_difference(a.values[field], b.values[field]);
      if (difference <= parting.difference) continue;
      parting.difference = difference;
      parting.field = field;
      parting.a = a.values[field];
      parting.b = b.values[field];
    }
    if (parting.difference < 0) return;
    parting.order = a.order;
    parting.rank = rank;
    parting.kind = kind;
    parting.micro_step = a.micro_step;
    parting.line = a.line;
    note(std::move(parting), a, count);
  }

  void note(Parting parting, const StepRow& a, Divergence::StepCount& count) {
    const auto of_rank = found_.by_rank.find(parting.rank);
    const bool first_of_rank = of_rank == found_.by_rank.end() || parting.order < of_rank->second.order;
    const bool worst = count.parted++ == 0 || parting.difference > count.worst->difference;
    if (!first_of_rank && !worst) return;
    parting.layer = names_.label(a.name);
    parting.file = *a.file;
    if (!found_.first || parting.order < found_.first->order) found_.first = parting;
    if (worst) count.worst = std::make_unique<Parting>(parting);
    if (first_of_rank) found_.by_rank[parting.rank] = std::move(parting);
  }

  const Tolerance tolerance_;
  Problems& problems_;
  NameIndex names_;
  Divergence found_;
};

}  // namespace

Divergence find_divergence(const Run& a, const Run& b, const Tolerance& tolerance, Problems& problems) {
  const Files in_a = files_of(a, problems);
  const Files in_b = files_of(b, problems);
  const std::vector<KindFile> none;
  Comparison comparison(tolerance, problems);
  for (const auto& [key, files] : in_a) {
    const auto other = in_b.find(key);
    comparison.compare(key.first, key.second, files, other == in_b.end() ? none : other->second);
  }
  for (const auto& [key, files] : in_b) {
    if (in_a.count(key) == 0) comparison.compare(key.first, key.second, none, files);
  }
  return comparison.take();
}

}  // namespace gradmon
