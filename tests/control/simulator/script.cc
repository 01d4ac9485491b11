// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/script.h"

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

}  // namespace gradmon
