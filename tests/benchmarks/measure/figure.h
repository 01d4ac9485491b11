// SPDX-License-Identifier: Apache-2.0
// The results of tools/bench: figures, with their goals.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

struct Goal {
  enum class Sense { at_most, at_least };
  Sense sense;
  double bound;

  bool met_by(double value) const { return sense == Sense::at_most ? value <= bound : value >= bound; }
};

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::optional<Goal> goal;  // nullopt: only reported
  std::string how;           // what was measured, how often, and how far it spread
  std::optional<bool> met;   // overrides the comparison with the goal

  // nullopt: there is no goal.
  std::optional<bool> is_met() const {
    if (met || !goal) return met;
    return goal->met_by(value);
  }
};

// quick only shows that every benchmark runs; its values are not meaningful.
enum class Effort { quick, full };

// A benchmark, with the names of the figures that it yields.
struct Bench {
  std::vector<std::string> yields;
  std::function<std::vector<Figure>(Effort)> run;  // throws std::exception if it cannot measure
};

// A line of the table, and the whole file of --json.
std::string line_of(const Figure& figure);
std::string json_of(const std::vector<Figure>& figures);

}  // namespace gradmon
