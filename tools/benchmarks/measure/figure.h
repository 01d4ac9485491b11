// SPDX-License-Identifier: Apache-2.0
// What tools/bench gives: figures, each with its goal.
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
  std::optional<Goal> goal;  // none: it is only reported
  std::string how;           // what was measured, how often, and how far it spread
  std::optional<bool> met;   // where the goal alone does not say so

  // None where there is no goal.
  std::optional<bool> is_met() const {
    if (met || !goal) return met;
    return goal->met_by(value);
  }
};

// How much time there is: quick runs show that all is measured, not how much it is.
enum class Effort { quick, full };

// A program that yields figures; their names are known before it runs.
struct Bench {
  std::vector<std::string> yields;
  std::function<std::vector<Figure>(Effort)> run;  // throws std::exception where it cannot measure
};

// A line of the table, and the whole file of --json.
std::string line_of(const Figure& figure);
std::string json_of(const std::vector<Figure>& figures);

}  // namespace gradmon
