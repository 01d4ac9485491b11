// SPDX-License-Identifier: Apache-2.0
// Runs simulated histories and prints the first that goes wrong.
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>

#include "tests/control/simulator/mutant_names.h"
#include "tests/control/simulator/script.h"
#include "tests/control/simulator/simulation.h"

namespace {

using namespace gradmon;

constexpr const char* kUsage =
    "usage: simulate [--switches N | --seeds N] [--seed FIRST] [--script FILE] [--mutant NAME] [--trace "
    "yes]\n"
    "Runs one history per seed until N switches (default 20000) or N seeds are done, or runs the script "
    "in FILE.\n"
    "Ends at the first history that goes wrong, and prints a shrunk script of it for tests/control/seeds.\n"
    "--trace yes prints every event.\n";

struct Options {
  std::uint64_t switches = 20'000;
  std::uint64_t seeds = 0;
  std::uint64_t seed = 1;
  std::string script;
  bool trace = false;
};

std::optional<std::uint64_t> number_of(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end) return {};
  return number;
}

// False: there is no such option, or the value is invalid.
bool set_option(Options& options, const std::string& name, const std::string& value) {
  if (name == "--script") {
    options.script = value;
    return true;
  }
  if (name == "--trace") {
    options.trace = value == "yes";
    return options.trace;
  }
  if (name == "--mutant") {
    for (const NamedMutant& known : all_mutants()) {
      if (known.name == value) chosen_mutant = known.mutant;
    }
    return chosen_mutant != Mutant::none;
  }
  const auto number = number_of(value);
  if (!number) return false;
  if (name == "--switches") {
    options.switches = *number;
  } else if (name == "--seeds") {
    options.seeds = *number;
  } else if (name == "--seed") {
    options.seed = *number;
  } else {
    return false;
  }
  return true;
}

std::optional<Options> options_of(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    if (i + 1 == count || !set_option(options, words[i], words[i + 1])) return {};
  }
  return options;
}

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
  const auto options = options_of(count, words);
  if (!options) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return options->script.empty() ? run_seeds(*options) : run_file(*options);
}
