// SPDX-License-Identifier: Apache-2.0
// gradmon-bench: what gradmon costs, in figures.
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tests/benchmarks/measure.h"

namespace gradmon {
namespace {

// Measures the figures of these names, all without one, and writes them to the file if it has a name.
int run(const std::vector<Bench>& benches, Effort effort, const std::vector<std::string>& names,
        const std::string& json) {
  std::vector<Figure> figures;
  int code = 0;
  for (const auto& [yields, measure] : benches) {
    const auto first = std::find_first_of(yields.begin(), yields.end(), names.begin(), names.end());
    if (!names.empty() && first == yields.end()) continue;
    try {
      for (Figure& figure : measure(effort)) {
        if (effort == Effort::quick) figure.how += "; quick: the value is not meaningful";
        std::cout << line_of(figure) << std::endl;
        figures.push_back(std::move(figure));
      }
    } catch (const std::exception& error) {
      std::cerr << "gradmon-bench: " << yields.front() << ": " << error.what() << std::endl;
      code = 1;
    }
  }
  if (json.empty() || (std::ofstream(json) << json_of(figures)).flush()) return code;
  std::cerr << "gradmon-bench: cannot write " << json << std::endl;
  return 1;
}

int main(int argc, char** argv) {
  std::vector<Bench> benches;
  for (const auto& part :
       {training_cost(), reading_cost(), agreement_time(), writing_rate(), simulated_hubs()})
    benches.insert(benches.end(), part.begin(), part.end());
  std::vector<std::string> known, names;
  for (const Bench& bench : benches) known.insert(known.end(), bench.yields.begin(), bench.yields.end());
  bool is_quick = false, lists = false;
  std::string json;
  CLI::App app(
      "Measures what gradmon costs, on a machine that should be quiet. Exit code 0: measured, whether "
      "goals are met or not; 1: something could not be measured; 2: wrong usage.");
  app.add_flag("--quick", is_quick, "Checks that every benchmark runs; the values are not meaningful");
  app.add_option("--json", json,
                 "Writes the figures to this file: {\"figures\": [{\"name\", \"value\", \"unit\", \"goal\", "
                 "\"met\", \"how\"}]}; null where there is no goal");
  app.add_flag("--list", lists, "The names of all figures");
  app.add_option("NAME", names, "Only these figures, and those that are measured with them; all without one")
      ->check(CLI::IsMember(known));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (const std::string& name : known) {
    if (lists) std::cout << name << "\n";
  }
  ::setenv("GRADMON_LOG", "error", 0);
  return lists ? 0 : run(benches, is_quick ? Effort::quick : Effort::full, names, json);
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) { return gradmon::main(argc, argv); }
