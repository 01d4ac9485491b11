// SPDX-License-Identifier: Apache-2.0
// Runs simulated histories and prints the first that goes wrong.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/control/simulator/mutant_names.h"
#include "tests/control/simulator/script.h"
#include "tests/control/simulator/simulation.h"

namespace {

using namespace gradmon;

struct Options {
  std::uint64_t switches = 20'000;
  std::uint64_t seeds = 0;
  std::uint64_t seed = 1;
  std::string script;
  bool trace = false;
};

Outcome run(const Script& script, bool trace) {
  Simulation simulation(script);
  if (trace) simulation.trace([](const std::string& line) { std::puts(line.c_str()); });
  return simulation.run();
}

void print_failure(const Script& script, const Outcome& outcome) {
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(script.seed), outcome.failure.c_str());
  const Script small = shrink(script, [](const Script& tried) { return !simulate(tried).failure.empty(); });
  std::printf("# %s\n%s", simulate(small).failure.c_str(), to_text(small).c_str());
}

int run_file(const Options& options) {
  std::ifstream file(options.script);
  if (!file) {
    std::fprintf(stderr, "cannot open %s\n", options.script.c_str());
    return 2;
  }
  const auto script = script_from_text({std::istreambuf_iterator<char>(file), {}});
  if (!script) {
    std::fprintf(stderr, "%s: %s\n", options.script.c_str(), script.error().c_str());
    return 2;
  }
  const Outcome outcome = run(*script, options.trace);
  if (!outcome.failure.empty()) print_failure(*script, outcome);
  return outcome.failure.empty() ? 0 : 1;
}

int run_seeds(const Options& options) {
  Outcome sum;
  std::uint64_t done = 0;
  const auto enough = [&] {
    return options.seeds > 0 ? done >= options.seeds : sum.switches >= options.switches;
  };
  for (; !enough(); ++done) {
    const Script script = script_of(options.seed + done);
    const Outcome one = run(script, options.trace);
    sum.switches += one.switches;
    sum.commits += one.commits;
    sum.lapses += one.lapses;
    sum.coordinators += one.coordinators;
    sum.steps += one.steps;
    sum.messages += one.messages;
    if (one.failure.empty()) continue;
    print_failure(script, one);
    return 1;
  }
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu histories: %llu switches, %llu commits, %llu lapses, %llu coordinators,\n"
      "%llu steps, %llu messages; nothing went wrong\n",
      number(done), number(sum.switches), number(sum.commits), number(sum.lapses), number(sum.coordinators),
      number(sum.steps), number(sum.messages));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  Options options;
  std::string mutant, trace;
  CLI::App app{
      "Runs one history per seed until N switches or N seeds are done, or runs the script in FILE. Ends at "
      "the\n"
      "first history that goes wrong, and prints a shrunk script of it for tests/control/seeds.",
      "simulate"};
  app.add_option("--switches", options.switches, "20000 unless it is given");
  app.add_option("--seeds", options.seeds);
  app.add_option("--seed", options.seed, "the first");
  app.add_option("--script", options.script, "FILE");
  app.add_option("--mutant", mutant);
  app.add_option("--trace", trace, "yes: prints every event")->check(CLI::IsMember({"yes"}));
  CLI11_PARSE(app, count, words);
  options.trace = !trace.empty();
  for (const NamedMutant& known : all_mutants()) {
    if (known.name == mutant) chosen_mutant = known.mutant;
  }
  if (!mutant.empty() && chosen_mutant == Mutant::none) return 2;
  return options.script.empty() ? run_seeds(options) : run_file(options);
}
