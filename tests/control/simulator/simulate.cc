// SPDX-License-Identifier: Apache-2.0
// Runs simulated histories, and shows what goes wrong in them.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "tests/control/simulator/mutant_names.h"
#include "tests/control/simulator/script_generator.h"
#include "tests/control/simulator/script_shrinker.h"
#include "tests/control/simulator/simulation.h"

namespace {

using namespace gradmon;

constexpr const char* kUsage =
    "usage: simulate [--switches N | --seeds N] [--seed FIRST] [--script FILE] [--mutant NAME] [--tell yes]\n"
    "Runs one history a seed until so many switches (default 20000) or seeds are done, or the one of a "
    "file.\n"
    "What goes wrong is told, shrunk and printed as a script, to be kept in tests/control/seeds.\n";

struct Options {
  std::uint64_t switches = 20'000;
  std::uint64_t seeds = 0;
  std::uint64_t seed = 1;
  std::string script;
  bool tell = false;
};

std::optional<Options> options_of(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i];
    if (i + 1 == count) return {};
    const std::string value = words[i + 1];
    const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--switches") {
      options.switches = number;
    } else if (name == "--seeds") {
      options.seeds = number;
    } else if (name == "--seed") {
      options.seed = number;
    } else if (name == "--script") {
      options.script = value;
    } else if (name == "--tell") {
      options.tell = true;
    } else if (name == "--mutant") {
      for (const NamedMutant& known : all_mutants()) {
        if (known.name == value) chosen_mutant = known.mutant;
      }
      if (chosen_mutant == Mutant::none) return {};
    } else {
      return {};
    }
  }
  return options;
}

Outcome run(const Script& script, bool tell) {
  Simulation simulation(script);
  if (tell) simulation.tell([](const std::string& line) { std::puts(line.c_str()); });
  return simulation.run();
}

void show(const Script& script, const Outcome& outcome) {
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(script.seed), outcome.wrong.c_str());
  const Script small = shrink(script, [](const Script& tried) { return !simulate(tried).wrong.empty(); });
  std::printf("# %s\n%s", simulate(small).wrong.c_str(), to_text(small).c_str());
}

int run_file(const Options& options) {
  std::ifstream file(options.script);
  const auto script = script_from_text({std::istreambuf_iterator<char>(file), {}});
  if (!script) {
    std::fprintf(stderr, "%s: %s\n", options.script.c_str(), script.error().c_str());
    return 2;
  }
  const Outcome outcome = run(*script, options.tell);
  if (!outcome.wrong.empty()) show(*script, outcome);
  return outcome.wrong.empty() ? 0 : 1;
}

int run_seeds(const Options& options) {
  Outcome sum;
  std::uint64_t done = 0;
  const auto enough = [&] {
    return options.seeds > 0 ? done >= options.seeds : sum.switches >= options.switches;
  };
  for (; !enough(); ++done) {
    const Script script = script_of(options.seed + done);
    const Outcome one = run(script, options.tell);
    sum.switches += one.switches;
    sum.commits += one.commits;
    sum.lapses += one.lapses;
    sum.lives += one.lives;
    sum.steps += one.steps;
    sum.messages += one.messages;
    if (one.wrong.empty()) continue;
    show(script, one);
    return 1;
  }
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu histories: %llu switches, %llu commits, %llu lapses, %llu lives of the coordinator,\n"
      "%llu steps, %llu messages; nothing went wrong\n",
      number(done), number(sum.switches), number(sum.commits), number(sum.lapses), number(sum.lives),
      number(sum.steps), number(sum.messages));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const auto options = options_of(count, words);
  if (!options) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return options->script.empty() ? run_seeds(*options) : run_file(*options);
}
