// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/script.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <system_error>

namespace gradmon {
namespace {

constexpr std::array<const char*, 18> kKinds{
    "propose", "stop_trainer", "stop_agent", "stop_process", "crash",     "leave",
    "cut_up",  "cut_down",     "reconnect",  "storm",        "costs",     "twin",
    "evict",   "cancel",       "stop_hub",   "hub_dies",     "log_fails", "alert"};

struct IncidentField {
  const char* name;
  std::int64_t Incident::*value;
};
constexpr std::array<IncidentField, 16> kIncidentFields{{{"rank", &Incident::rank},
                                                         {"lasts", &Incident::lasts},
                                                         {"on", &Incident::on},
                                                         {"interval", &Incident::interval},
                                                         {"times", &Incident::times},
                                                         {"later", &Incident::later},
                                                         {"lookahead", &Incident::lookahead},
                                                         {"max_wait", &Incident::max_wait},
                                                         {"answer", &Incident::answer},
                                                         {"keeps", &Incident::keeps},
                                                         {"lose", &Incident::lose},
                                                         {"twice", &Incident::twice},
                                                         {"delay", &Incident::delay},
                                                         {"behind", &Incident::behind},
                                                         {"budget", &Incident::budget},
                                                         {"cost", &Incident::cost}}};

struct ScriptField {
  const char* name;
  std::int64_t Script::*value;
};
constexpr std::array<ScriptField, 4> kScriptFields{{{"world", &Script::world},
                                                    {"coupled", &Script::coupled},
                                                    {"first_step", &Script::first_step},
                                                    {"calm_from", &Script::calm_from}}};

void write(std::ostream& out, const Incident& incident) {
  const Incident plain;
  out << name_of(incident.kind);
  for (const IncidentField& field : kIncidentFields) {
    if (incident.*field.value != plain.*field.value) out << ' ' << field.name << '=' << incident.*field.value;
  }
  out << '\n';
}

bool read_number(const std::string& text, std::int64_t& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && rest == end;
}

tl::expected<Incident, std::string> read_incident(std::istream& in, std::int64_t at) {
  Incident incident;
  incident.at = at;
  std::string word;
  in >> word;
  std::size_t kind = 0;
  while (kind < kKinds.size() && word != kKinds[kind]) ++kind;
  if (kind == kKinds.size()) return tl::unexpected("no incident is called \"" + word + "\"");
  incident.kind = static_cast<Incident::Kind>(kind);
  while (in >> word) {
    const std::size_t equals = word.find('=');
    const IncidentField* found = nullptr;
    for (const IncidentField& field : kIncidentFields) {
      if (word.substr(0, equals) == field.name) found = &field;
    }
    if (equals == std::string::npos || found == nullptr) return tl::unexpected("not a field: " + word);
    if (!read_number(word.substr(equals + 1), incident.*found->value))
      return tl::unexpected("not a number: " + word);
  }
  return incident;
}

std::string read_line(std::istream& in, Script& script) {
  std::string word;
  if (!(in >> word) || word[0] == '#') return "";
  if (word == "seed") return in >> script.seed ? "" : "seed must be a number";
  for (const ScriptField& field : kScriptFields) {
    if (word == field.name) return in >> script.*field.value ? "" : word + " must be a number";
  }
  if (word == "step_ms" || word == "joins") {
    auto& list = word == "joins" ? script.joins : script.step_ms;
    for (std::int64_t one = 0; in >> one;) list.push_back(one);
    return "";
  }
  const bool starts = word == "start";
  std::int64_t at = 0;
  if (!starts && (word != "at" || !(in >> at))) return "not a line of a script: " + word;
  auto incident = read_incident(in, at);
  if (!incident) return incident.error();
  (starts ? script.starts : script.incidents).push_back(*incident);
  return "";
}

}  // namespace

const char* name_of(Incident::Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

std::string to_text(const Script& script) {
  std::ostringstream out;
  out << "seed " << script.seed << '\n';
  for (const ScriptField& field : kScriptFields) out << field.name << ' ' << script.*field.value << '\n';
  out << "step_ms";
  for (const std::int64_t ms : script.step_ms) out << ' ' << ms;
  out << "\njoins";
  for (const std::int64_t ms : script.joins) out << ' ' << ms;
  out << '\n';
  for (const Incident& incident : script.starts) {
    out << "start ";
    write(out, incident);
  }
  for (const Incident& incident : script.incidents) {
    out << "at " << incident.at << ' ';
    write(out, incident);
  }
  return out.str();
}

tl::expected<Script, std::string> script_from_text(const std::string& text) {
  Script script;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    number += 1;
    std::istringstream words(line);
    if (auto trouble = read_line(words, script); !trouble.empty())
      return tl::unexpected("line " + std::to_string(number) + ": " + trouble);
  }
  const auto world = static_cast<std::size_t>(script.world);
  if (script.step_ms.size() != world || script.joins.size() != world)
    return tl::unexpected(std::string("step_ms and joins need one number for each rank"));
  return script;
}

namespace {

using Kind = Incident::Kind;

constexpr std::int64_t kQuiet = 45'000;  // ms without other proposals

Incident random_proposal(Dice& dice, const Script& script) {
  Incident made;
  made.kind = Kind::propose;
  made.on = dice.chance(700);
  made.interval = dice.chance(500) ? 1 : dice.between(1, 7);
  made.times = dice.chance(50) ? 0 : dice.chance(100) ? 1'000'000 : dice.between(1, 12);
  if (dice.chance(150)) made.later = dice.between(1, 60);
  if (dice.chance(300)) made.lookahead = dice.between(1, 4);
  made.max_wait = dice.chance(700) ? 2000 : dice.between(1, 40) * 100;
  if (dice.chance(80)) made.answer = dice.between(1, 3);
  made.rank = dice.between(0, script.world - 1);
  return made;
}

// A single fault.
Incident random_fault(Dice& dice, const Script& script) {
  static constexpr Kind kinds[] = {Kind::stop_trainer, Kind::stop_agent, Kind::stop_process, Kind::cut_up,
                                   Kind::cut_down,     Kind::storm,      Kind::crash,        Kind::crash,
                                   Kind::hub_dies,     Kind::hub_dies,   Kind::stop_hub,     Kind::reconnect,
                                   Kind::log_fails,    Kind::cancel};
  Incident made;
  made.kind = kinds[dice.between(0, 13)];
  made.rank = dice.between(0, script.world - 1);
  made.lasts = dice.log_uniform(20, 25'000);
  made.keeps = dice.chance(500);
  if (made.kind == Kind::storm) {
    made.lose = dice.between(0, 500);
    made.twice = dice.between(0, 300);
    made.delay = dice.log_uniform(2, 600);
  } else if (made.kind == Kind::crash) {
    // In a coupled job the others would wait in a collective for the rank that died: it stops instead.
    const bool for_good = dice.chance(200);
    made.lasts = dice.log_uniform(1, 5000);
    if (script.coupled != 0) {
      made.kind = Kind::stop_process;
    } else if (for_good) {
      made.lasts = 0;
    }
    made.behind = dice.chance(500) ? 0 : dice.between(0, 60);
  } else if (made.kind == Kind::hub_dies) {
    made.lasts = dice.log_uniform(5, 4000);
    made.keeps = dice.chance(800);
  } else if (made.kind == Kind::stop_hub || made.kind == Kind::log_fails) {
    made.lasts = dice.log_uniform(20, 12'000);
  } else if (made.kind == Kind::reconnect || made.kind == Kind::cancel) {
    made.lasts = 0;
  }
  return made;
}

// Cuts off a rank's messages to the coordinator, or from it, or both.
void isolate(Dice& dice, Script& script, std::int64_t at) {
  Incident cut;
  cut.at = at;
  cut.rank = dice.between(0, script.world - 1);
  cut.lasts = dice.between(500, 25'000);
  cut.keeps = dice.chance(300);
  for (const Kind kind : {Kind::cut_up, Kind::cut_down}) {
    if (dice.chance(200)) continue;
    cut.kind = kind;
    script.incidents.push_back(cut);
  }
}

Incident endless_plan(Dice& dice, const Script& script, std::int64_t at) {
  Incident on = random_proposal(dice, script);
  on.at = at;
  on.on = 1;
  on.interval = 1;
  on.times = 1'000'000;
  on.later = on.answer = 0;
  return on;
}

void cut_both_ways(Script& script, Incident made) {
  for (const Kind kind : {Kind::cut_up, Kind::cut_down}) {
    made.kind = kind;
    script.incidents.push_back(made);
  }
}

// Acknowledgements arrive late at a rank, its agent reads them even later, and then the
// rank is cut off.
void delay_acknowledgements(Dice& dice, Script& script, std::int64_t at,
                            std::vector<std::int64_t>& quiet_from) {
  script.incidents.push_back(endless_plan(dice, script, at));
  Incident made;
  made.kind = Kind::cut_down;
  made.at = at + 2'000;
  made.rank = dice.between(0, script.world - 1);
  made.lasts = 1'200;
  made.keeps = 1;
  script.incidents.push_back(made);
  made.kind = Kind::stop_agent;
  made.at += made.lasts - 20;
  made.lasts = dice.between(2'000, 8'000);
  made.keeps = 0;
  script.incidents.push_back(made);
  made.at += made.lasts - 5;
  made.lasts = 20'000;
  cut_both_ways(script, made);
  quiet_from.push_back(at);
}

// A rank loses its lease while a commit is still far ahead, misses the off that
// follows, and returns before the commit's effective step.
void lapse_before_effective(Dice& dice, Script& script, std::vector<std::int64_t>& quiet_from) {
  const std::int64_t at = dice.between(500, 2'000);
  for (std::int64_t& step : script.step_ms) step = 100;
  script.calm_from = std::max(script.calm_from, at + kQuiet);
  Incident on = endless_plan(dice, script, at);
  on.lookahead = 220;
  script.incidents.push_back(on);
  Incident made;
  made.rank = dice.between(0, script.world - 1);
  made.at = at + 2'000;
  made.lasts = dice.between(12'000, 16'000);
  cut_both_ways(script, made);
  on.at = at + dice.between(2'500, 8'000);
  on.on = 0;
  on.lookahead = 0;
  script.incidents.push_back(on);
  quiet_from.push_back(at);
}

// A rank reconnects while its promise is on the way.
void reconnect_during_promise(Dice& dice, Script& script, std::int64_t at) {
  Incident made = endless_plan(dice, script, at);
  script.incidents.push_back(made);
  made = {};
  made.rank = dice.between(0, script.world - 1);
  made.kind = Kind::storm;
  made.at = at;
  made.lasts = 10;
  made.delay = dice.between(0, 3);
  script.incidents.push_back(made);
  made.kind = Kind::cut_up;
  made.at = at + dice.between(0, 5);
  made.lasts = dice.between(50, 600);
  made.delay = 0;
  made.keeps = 1;
  script.incidents.push_back(made);
  made.kind = Kind::reconnect;
  made.at += 20;
  made.lasts = made.keeps = 0;
  script.incidents.push_back(made);
}

// A rank misses an off and is heard again. No other proposal follows for long.
void miss_an_off(Dice& dice, Script& script, std::int64_t at, std::vector<std::int64_t>& quiet_from) {
  Incident on = endless_plan(dice, script, at);
  script.incidents.push_back(on);
  Incident made;
  made.rank = dice.between(0, script.world - 1);
  made.at = at + 1'500;
  made.lasts = dice.between(3'500, 7'000);
  cut_both_ways(script, made);
  on.at = made.at + dice.between(100, 3'400);
  on.on = 0;
  script.incidents.push_back(on);
  quiet_from.push_back(at);
}

// The coordinator or a rank dies while a change is being decided.
void crash_during_decision(Dice& dice, Script& script, std::int64_t at) {
  for (std::int64_t count = dice.between(1, 2); count > 0; --count) {
    script.incidents.push_back(random_proposal(dice, script));
    script.incidents.back().at = at + dice.between(0, 20);
  }
  Incident made;
  made.at = at + dice.between(0, 60);
  made.rank = dice.between(0, script.world - 1);
  made.kind = script.coupled == 0 && dice.chance(400) ? Kind::crash : Kind::hub_dies;
  made.lasts = dice.log_uniform(5, 2000);
  made.keeps = dice.chance(900);
  script.incidents.push_back(made);
}

void add_rare(Dice& dice, Script& script) {
  Incident made;
  made.at = dice.between(500, script.calm_from);
  made.rank = dice.between(0, script.world - 1);
  if (dice.chance(150)) {
    made.kind = Kind::twin;
    made.lasts = dice.log_uniform(100, 20'000);
  } else if (dice.chance(150)) {
    made.kind = Kind::evict;
  } else if (dice.chance(100)) {
    made.kind = Kind::leave;
  } else {
    return;
  }
  script.incidents.push_back(made);
}

void add_faults(Dice& dice, Script& script, std::vector<std::int64_t>& quiet_from) {
  if (dice.chance(150)) return;  // a calm history
  for (std::int64_t count = dice.between(1, 10); count > 0; --count) {
    const std::int64_t at = dice.between(0, script.calm_from);
    if (dice.chance(100)) {
      isolate(dice, script, at);
    } else if (dice.chance(150)) {
      crash_during_decision(dice, script, at);
    } else if (dice.chance(60)) {
      delay_acknowledgements(dice, script, at, quiet_from);
    } else if (dice.chance(30)) {
      miss_an_off(dice, script, at, quiet_from);
    } else if (dice.chance(20)) {
      lapse_before_effective(dice, script, quiet_from);
    } else if (dice.chance(60)) {
      reconnect_during_promise(dice, script, at);
    } else {
      script.incidents.push_back(random_fault(dice, script));
      script.incidents.back().at = at;
    }
  }
  add_rare(dice, script);
  for (Incident& incident : script.incidents) {
    const bool never_ends = incident.lasts == 0;
    if (!never_ends && incident.at + incident.lasts > script.calm_from)
      incident.lasts = std::max<std::int64_t>(1, script.calm_from - incident.at);
  }
}

// Has its own dice, so that the draws of the other functions stay the same.
void add_budgets(Script& script) {
  Dice dice(script.seed ^ 0xb0d6e7);
  if (!dice.chance(300)) return;
  const auto limit = [&](Incident& proposal) {
    if (proposal.kind != Kind::propose || !dice.chance(600)) return;
    proposal.budget = dice.log_uniform(1, 200);
    if (dice.chance(700)) proposal.times = dice.between(20, 100'000);
    if (dice.chance(700)) proposal.interval = 1;
  };
  // Most proposals go: a plan's cost is known only after it has collected some steps.
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

// A rank misses a verdict, and the next change follows before the rank can learn it.
// Has its own dice, too.
void add_lost_verdict(Script& script) {
  Dice dice(script.seed ^ 0x7e4d1c);
  if (!dice.chance(150)) return;
  Incident made = endless_plan(dice, script, dice.between(2'000, script.calm_from - 2'000));
  script.incidents.push_back(made);
  made.at += dice.between(20, 150);
  script.incidents.push_back(made);
  Incident cut;
  cut.kind = Kind::cut_down;
  cut.rank = dice.between(0, script.world - 1);
  cut.at = script.incidents[script.incidents.size() - 2].at + dice.between(1, 2);
  cut.lasts = dice.between(5, 60);
  script.incidents.push_back(cut);
}

// Alerts among all else, mostly while a plan collects for long. Has its own dice, too.
void add_alerts(Script& script) {
  Dice dice(script.seed ^ 0xa1e27);
  if (!dice.chance(300)) return;
  for (std::int64_t count = dice.between(0, 2); count > 0; --count)
    script.incidents.push_back(endless_plan(dice, script, dice.between(500, script.calm_from)));
  for (std::int64_t count = dice.between(1, 12); count > 0; --count) {
    Incident made;
    made.kind = Kind::alert;
    made.at = dice.between(500, script.calm_from);
    made.rank = dice.between(0, script.world - 1);
    made.interval = dice.chance(700) ? 1 : dice.between(2, 5);
    made.times = dice.chance(100) ? dice.between(20, 500) : dice.between(1, 8);
    if (dice.chance(60)) made.answer = dice.between(1, 3);
    script.incidents.push_back(made);
  }
}

}  // namespace

Script script_of(std::uint64_t seed) {
  Dice dice(seed);
  Script script;
  script.seed = seed;
  script.world = dice.chance(50) ? 1 : dice.chance(100) ? dice.between(5, 8) : dice.between(2, 4);
  script.coupled = dice.chance(400);
  script.first_step = dice.chance(300) ? dice.between(1, 1000) : 0;
  script.calm_from = dice.between(15'000, 60'000);
  const std::int64_t step = dice.log_uniform(8, 150);
  for (std::int64_t rank = 0; rank < script.world; ++rank) {
    script.step_ms.push_back(script.coupled != 0 ? step : dice.between(step, step + step / 2));
    script.joins.push_back(dice.chance(50) ? dice.log_uniform(100, 10'000) : dice.between(0, 200));
  }
  if (dice.chance(500)) {
    script.starts.push_back(random_proposal(dice, script));
    script.starts.back().on = 1;
    script.starts.back().answer = 0;
  }
  std::vector<std::int64_t> quiet_from;
  add_faults(dice, script, quiet_from);
  const std::int64_t longest = dice.log_uniform(200, 3000);
  for (std::int64_t at = dice.between(100, 1000); at < script.calm_from; at += dice.between(20, longest)) {
    const bool quiet = std::any_of(quiet_from.begin(), quiet_from.end(),
                                   [&](std::int64_t from) { return at >= from && at < from + kQuiet; });
    if (quiet) continue;
    script.incidents.push_back(random_proposal(dice, script));
    script.incidents.back().at = at;
  }
  add_budgets(script);
  add_lost_verdict(script);
  add_alerts(script);
  std::stable_sort(script.incidents.begin(), script.incidents.end(),
                   [](const Incident& a, const Incident& b) { return a.at < b.at; });
  return script;
}

namespace {

using Fails = std::function<bool(const Script&)>;

// Leaves out each run of `length` incidents that is not needed. Returns whether it left out any.
bool remove_runs(Script& script, std::size_t length, const Fails& fails) {
  bool any = false;
  for (std::size_t at = 0; at < script.incidents.size();) {
    Script tried = script;
    const auto first = tried.incidents.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t count = std::min(length, tried.incidents.size() - at);
    tried.incidents.erase(first, first + static_cast<std::ptrdiff_t>(count));
    if (fails(tried)) {
      script = std::move(tried);
      any = true;
    } else {
      at += length;
    }
  }
  return any;
}

void simplify_job(Script& script, const Fails& fails) {
  static constexpr std::int64_t Script::*fields[] = {&Script::coupled, &Script::first_step};
  for (const auto field : fields) {
    Script tried = script;
    tried.*field = 0;
    if (script.*field != 0 && fails(tried)) script = std::move(tried);
  }
  while (script.world > 1) {
    Script tried = script;
    tried.world -= 1;
    tried.step_ms.pop_back();
    tried.joins.pop_back();
    if (!fails(tried)) break;
    script = std::move(tried);
  }
}

}  // namespace

Script shrink(Script script, const Fails& fails) {
  simplify_job(script, fails);
  std::size_t length = std::max<std::size_t>(1, script.incidents.size() / 2);
  while (!script.incidents.empty()) {
    const bool any = remove_runs(script, length, fails);
    if (length == 1 && !any) break;
    length = std::max<std::size_t>(1, length / 2);
  }
  simplify_job(script, fails);
  return script;
}

}  // namespace gradmon
