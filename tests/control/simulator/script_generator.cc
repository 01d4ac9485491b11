// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/script_generator.h"

#include <algorithm>

#include "tests/control/simulator/dice.h"

namespace gradmon {
namespace {

using Kind = Incident::Kind;

Incident a_proposal(Dice& dice, const Script& script) {
  Incident made;
  made.kind = Kind::propose;
  made.on = dice.chance(700);
  made.interval = dice.chance(500) ? 1 : dice.between(1, 7);
  made.times = dice.chance(50) ? 0 : dice.chance(100) ? 1'000'000 : dice.between(1, 12);
  if (dice.chance(150)) made.later = dice.between(1, 60);
  if (dice.chance(300)) made.lookahead = dice.between(1, 4);
  made.timeout = dice.between(2, 6) * 1000;
  made.waits = dice.chance(50);
  if (dice.chance(80)) made.answer = dice.between(1, 3);
  made.rank = dice.between(0, script.world - 1);
  return made;
}

// A lone fault; those of the whole process and of its ways are equally likely.
Incident a_fault(Dice& dice, const Script& script) {
  static constexpr Kind kinds[] = {Kind::stop_trainer, Kind::stop_agent,     Kind::stop_process,
                                   Kind::cut_up,       Kind::cut_down,       Kind::register_hangs,
                                   Kind::storm,        Kind::register_fails, Kind::crash};
  Incident made;
  made.kind = kinds[dice.between(0, 8)];
  made.rank = dice.between(0, script.world - 1);
  made.lasts = dice.of_any_size(20, 12'000);
  made.keeps = dice.chance(500);
  if (made.kind == Kind::register_hangs || made.kind == Kind::register_fails) {
    if (dice.chance(400)) made.rank = -1;
  } else if (made.kind == Kind::storm) {
    made.rank = -1;
    made.lose = dice.between(0, 500);
    made.twice = dice.between(0, 300);
    made.delay = dice.of_any_size(2, 600);
  } else if (made.kind == Kind::crash) {
    // Alone it can come back only where the others do not stand in a collective with it.
    if (script.coupled != 0 || made.rank == 0) made.kind = Kind::stop_process;
    made.lasts = dice.of_any_size(20, 3000);
  }
  return made;
}

// A rank cut from everything, for longer than it waits.
void isolate(Dice& dice, Script& script, std::int64_t at) {
  Incident cut;
  cut.at = at;
  cut.rank = dice.between(0, script.world - 1);
  cut.lasts = dice.between(500, 15'000);
  cut.keeps = dice.chance(300);
  const bool hangs = dice.chance(500);
  for (const Kind kind :
       {Kind::cut_up, Kind::cut_down, hangs ? Kind::register_hangs : Kind::register_fails}) {
    if (kind == Kind::cut_up && dice.chance(300)) continue;
    cut.kind = kind;
    script.incidents.push_back(cut);
  }
}

// A rank that crashes and comes back while a verdict that counts on its promise
// is on its way into the register.
void come_back_in_doubt(Dice& dice, Script& script, std::int64_t at) {
  if (script.coupled != 0 || script.world < 2) return;
  script.incidents.push_back(a_proposal(dice, script));
  script.incidents.back().at = at + dice.between(0, 20);
  Incident made;
  made.kind = Kind::register_hangs;
  made.at = at;
  made.rank = 0;
  made.lasts = dice.between(300, 3000);
  script.incidents.push_back(made);
  made.kind = Kind::crash;
  made.at = at + dice.between(30, 250);
  made.rank = dice.between(1, script.world - 1);
  made.lasts = dice.between(20, 200);
  script.incidents.push_back(made);
}

void add_rare(Dice& dice, Script& script) {
  Incident made;
  made.at = dice.between(500, script.calm_from);
  if (dice.chance(120)) {
    made.kind = Kind::relaunch;
    made.lasts = dice.between(20, 2000);
    made.behind = dice.between(0, 50);
    made.world = dice.chance(700) ? script.world : dice.between(1, 4);
    if (dice.chance(600)) made.left_over = dice.between(0, script.world - 1);
  } else if (dice.chance(80)) {
    made.kind = Kind::leave;
    made.rank = dice.between(0, script.world - 1);
  } else if (dice.chance(40)) {
    made.kind = Kind::crash;  // of rank 0: nothing new is decided any more
    made.rank = 0;
  } else {
    return;
  }
  script.incidents.push_back(made);
}

void add_faults(Dice& dice, Script& script) {
  if (dice.chance(150)) return;  // a calm history
  for (std::int64_t count = dice.between(1, 10); count > 0; --count) {
    const std::int64_t at = dice.between(0, script.calm_from);
    if (dice.chance(80)) {
      isolate(dice, script, at);
    } else if (dice.chance(80)) {
      come_back_in_doubt(dice, script, at);
    } else {
      script.incidents.push_back(a_fault(dice, script));
      script.incidents.back().at = at;
    }
  }
  add_rare(dice, script);
  for (Incident& incident : script.incidents) {
    if (incident.kind != Kind::relaunch && incident.at + incident.lasts > script.calm_from)
      incident.lasts = std::max<std::int64_t>(1, script.calm_from - incident.at);
  }
}

// By dice of their own: the rest of the history is what it would be without.
void add_budgets(Script& script) {
  Dice dice(script.seed ^ 0xb0d6e7);
  if (!dice.chance(300)) return;
  const auto limit = [&](Incident& proposal) {
    if (proposal.kind != Kind::propose || !dice.chance(600)) return;
    proposal.budget = dice.of_any_size(1, 200);
    if (dice.chance(700)) proposal.times = dice.between(20, 100'000);
    if (dice.chance(700)) proposal.interval = 1;
  };
  // A plan must live for some collected steps before it is known what it costs.
  auto& incidents = script.incidents;
  const auto dropped = [&](const Incident& one) { return one.kind == Kind::propose && dice.chance(800); };
  incidents.erase(std::remove_if(incidents.begin(), incidents.end(), dropped), incidents.end());
  for (Incident& start : script.starts) limit(start);
  for (Incident& incident : incidents) limit(incident);
  for (std::int64_t count = dice.between(1, 6); count > 0; --count) {
    Incident made;
    made.kind = Kind::costs;
    made.at = dice.between(0, script.calm_from);
    made.rank = dice.between(0, script.world - 1);
    made.lasts = dice.between(1, script.calm_from - made.at + 1);
    made.cost = dice.between(1, 999);
    incidents.push_back(made);
  }
}

}  // namespace

Script script_of(std::uint64_t seed) {
  Dice dice(seed);
  Script script;
  script.seed = seed;
  script.world = dice.chance(50) ? 1 : dice.chance(100) ? dice.between(5, 8) : dice.between(2, 4);
  script.coupled = dice.chance(400);
  script.hosts = dice.between(1, 2);
  script.store = dice.chance(250);
  script.first_step = dice.chance(300) ? dice.between(1, 1000) : 0;
  script.calm_from = dice.between(15'000, 40'000);
  script.register_ms = dice.of_any_size(2, 200);
  const std::int64_t step = dice.of_any_size(8, 150);
  for (std::int64_t rank = 0; rank < script.world; ++rank) {
    script.step_ms.push_back(script.coupled != 0 ? step : dice.between(step, 3 * step));
    script.joins.push_back(dice.chance(50) ? dice.of_any_size(100, 10'000) : dice.between(0, 200));
  }
  if (dice.chance(500)) {
    script.starts.push_back(a_proposal(dice, script));
    script.starts.back().on = 1;
    script.starts.back().answer = 0;
  }
  add_faults(dice, script);
  const std::int64_t longest = dice.of_any_size(200, 3000);
  for (std::int64_t at = dice.between(100, 1000); at < script.calm_from; at += dice.between(20, longest)) {
    script.incidents.push_back(a_proposal(dice, script));
    script.incidents.back().at = at;
  }
  add_budgets(script);
  std::stable_sort(script.incidents.begin(), script.incidents.end(),
                   [](const Incident& a, const Incident& b) { return a.at < b.at; });
  return script;
}

}  // namespace gradmon
