// SPDX-License-Identifier: Apache-2.0
// simulate [--switches N | --seeds N] [--first SEED] [--script FILE] [--mutant NAME]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/control/simulator/script_generator.h"
#include "tests/control/simulator/simulation.h"

int main(int argc, char** argv) {
  using namespace gradmon;
  std::uint64_t first = 1, seeds = 0, switches = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--first") first = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seeds") seeds = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--switches") switches = std::strtoull(argv[i + 1], nullptr, 10);
  }
  Outcome sum;
  int bad = 0;
  std::uint64_t seed = first;
  for (; (seeds == 0 || seed < first + seeds) && (switches == 0 || sum.switches < switches); ++seed) {
    const Script script = script_of(seed);
    Simulation simulation(script);
    if (std::getenv("TELL")) simulation.tell([](const std::string& line) { std::puts(line.c_str()); });
    const Outcome one = simulation.run();
    if (!one.wrong.empty()) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), one.wrong.c_str());
      if (seeds == 1) std::printf("%s", to_text(script).c_str());
      if (++bad > 20) break;
    }
    sum.switches += one.switches;
    sum.commits += one.commits;
    sum.aborts += one.aborts;
    sum.missed += one.missed;
    sum.steps += one.steps;
    sum.letters += one.letters;
  }
  std::printf("%llu seeds, %llu switches, %llu commits, %llu aborts, %llu missed, %llu steps, %llu mails\n",
              (unsigned long long)(seed - first), (unsigned long long)sum.switches,
              (unsigned long long)sum.commits, (unsigned long long)sum.aborts, (unsigned long long)sum.missed,
              (unsigned long long)sum.steps, (unsigned long long)sum.letters);
  return bad != 0;
}
