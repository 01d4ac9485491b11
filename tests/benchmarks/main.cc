// SPDX-License-Identifier: Apache-2.0
// gradmon-bench: what gradmon costs, in figures.
#include <stdlib.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tests/benchmarks/measure.h"

namespace gradmon {
namespace {

constexpr const char* kUsage =
    "Usage: gradmon-bench [--quick] [--json FILE] [NAME...]\n"
    "Measures what gradmon costs: all figures, or those named (the names of\n"
    "others that come with them are printed too). The machine should be quiet.\n"
    "  --quick      checks that every benchmark runs; the values are not meaningful\n"
    "  --json FILE  the figures as {\"figures\": [{\"name\", \"value\", \"unit\",\n"
    "               \"goal\", \"met\", \"how\"}]}; null where there is no goal\n"
    "  --list       the names of all figures\n"
    "Exit code 0: measured, whether goals are met or not; 1: something could not\n"
    "be measured; 2: wrong usage.\n";

struct Request {
  Effort effort = Effort::full;
  std::string json;
  std::vector<std::string> names;  // empty: all
};

int run(const Request& request, const std::vector<Bench>& benches) {
  std::vector<Figure> figures;
  int code = 0;
  for (const auto& [yields, measure] : benches) {
    const auto first =
        std::find_first_of(yields.begin(), yields.end(), request.names.begin(), request.names.end());
    if (!request.names.empty() && first == yields.end()) continue;
    try {
      for (Figure& figure : measure(request.effort)) {
        if (request.effort == Effort::quick) figure.how += "; quick: the value is not meaningful";
        std::cout << line_of(figure) << std::endl;
        figures.push_back(std::move(figure));
      }
    } catch (const std::exception& error) {
      std::cerr << "gradmon-bench: " << yields.front() << ": " << error.what() << std::endl;
      code = 1;
    }
  }
  if (request.json.empty() || (std::ofstream(request.json) << json_of(figures)).flush()) return code;
  std::cerr << "gradmon-bench: cannot write " << request.json << std::endl;
  return 1;
}

int wrong(const std::string& why) {
  std::cerr << "gradmon-bench: " << why << "\n" << kUsage;
  return 2;
}

int main(const std::vector<std::string>& words) {
  std::vector<Bench> benches;
  for (const auto& part :
       {training_cost(), reading_cost(), agreement_time(), writing_rate(), simulated_hubs()})
    benches.insert(benches.end(), part.begin(), part.end());
  std::vector<std::string> known;
  for (const Bench& bench : benches) known.insert(known.end(), bench.yields.begin(), bench.yields.end());
  Request request;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help" || word == "-h") {
      std::cout << kUsage;
      return 0;
    }
    if (word == "--list") {
      for (const std::string& name : known) std::cout << name << "\n";
      return 0;
    }
    if (word == "--quick") {
      request.effort = Effort::quick;
    } else if (word == "--json") {
      if (++i == words.size()) return wrong("--json needs a file");
      request.json = words[i];
    } else if (std::find(known.begin(), known.end(), word) != known.end()) {
      request.names.push_back(word);
    } else {
      return wrong("no figure is named " + word);
    }
  }
  ::setenv("GRADMON_LOG", "error", 0);
  return run(request, benches);
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) { return gradmon::main(std::vector<std::string>(argv + 1, argv + argc)); }
