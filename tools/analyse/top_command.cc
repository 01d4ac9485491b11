// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "control/text/alert_words.h"
#include "tools/analyse/layer_changes.h"
#include "tools/analyse/rows/row.h"
#include "tools/analyse/rows/runs.h"
#include "tools/analyse/run_choice.h"
#include "tools/analyse/value_text.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"

namespace gradmon {
namespace {

constexpr int kFactorDigits = 4;
constexpr auto kLeft = TextTable::Align::left;
constexpr auto kRight = TextTable::Align::right;

std::string shown_layer(const std::string& label) { return layer_text(0, label); }

// "dead: 12 layers"; with the number of unlisted layers.
std::string heading(const std::string& what, std::size_t all, std::size_t count) {
  if (all == 0) return "\n" + what + ": none\n";
  return "\n" + what + ": " + std::to_string(all) + (all == 1 ? " layer" : " layers") +
         (all > count ? ", the first " + std::to_string(count) : "") + "\n";
}

std::string changes_table(const LayerChanges& changes, std::size_t count) {
  TextTable table({{"factor", kRight},
                   {"step", kRight},
                   {"rank", kRight},
                   {"before", kRight},
                   {"after", kRight},
                   {"kind", kLeft},
                   {"layer", kLeft}});
  for (std::size_t i = 0; i < std::min(count, changes.largest.size()); ++i) {
    const LayerChanges::Change& entry = changes.largest[i];
    table.add({number_text(entry.change.factor, kFactorDigits), std::to_string(entry.change.step),
               std::to_string(entry.rank), value_text(entry.change.before), value_text(entry.change.after),
               name_of(entry.kind), shown_layer(entry.layer)});
  }
  return table.text();
}

std::string dead_table(const LayerChanges& changes, std::size_t count) {
  TextTable table({{"since step", kRight}, {"ranks", kRight}, {"kind", kLeft}, {"layer", kLeft}});
  for (std::size_t i = 0; i < std::min(count, changes.dead.size()); ++i) {
    const LayerChanges::Dead& entry = changes.dead[i];
    table.add({std::to_string(entry.since), std::to_string(entry.ranks), name_of(entry.kind),
               shown_layer(entry.layer)});
  }
  return table.text();
}

std::string exploding_table(const LayerChanges& changes, std::size_t count) {
  TextTable table(
      {{"factor", kRight}, {"rank", kRight}, {"last size", kRight}, {"kind", kLeft}, {"layer", kLeft}});
  for (std::size_t i = 0; i < std::min(count, changes.exploding.size()); ++i) {
    const LayerChanges::Exploding& entry = changes.exploding[i];
    table.add({number_text(entry.growth, kFactorDigits), std::to_string(entry.rank),
               value_text(entry.last_size), name_of(entry.kind), shown_layer(entry.layer)});
  }
  return table.text();
}

template <typename Entry, typename ToJson>
OrderedJson list_json(const std::vector<Entry>& entries, std::size_t count, ToJson to_json) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < std::min(count, entries.size()); ++i) list.push_back(to_json(entries[i]));
  return list;
}

OrderedJson change_json(const LayerChanges::Change& entry) {
  return {{"layer", entry.layer},          {"kind", name_of(entry.kind)},         {"rank", entry.rank},
          {"factor", entry.change.factor}, {"from_step", entry.change.from_step}, {"step", entry.change.step},
          {"before", entry.change.before}, {"after", entry.change.after}};
}

OrderedJson dead_json(const LayerChanges::Dead& entry) {
  return {{"layer", entry.layer},
          {"kind", name_of(entry.kind)},
          {"since_step", entry.since},
          {"ranks", entry.ranks},
          {"first_rank", entry.rank}};
}

OrderedJson exploding_json(const LayerChanges::Exploding& entry) {
  return {{"layer", entry.layer},
          {"kind", name_of(entry.kind)},
          {"rank", entry.rank},
          {"factor", entry.growth},
          {"last_size", entry.last_size}};
}

std::string top_text(const Run& run, const LayerChanges& changes, std::size_t count) {
  const FirstNotFinite& not_finite = changes.not_finite;
  std::string text = text_of(run) + ", " + text_of(not_finite.extent) + "\n\n";
  text += not_finite.first ? "first value that is not finite: " + text_of(*not_finite.first) + "\n"
          : not_finite.always_infinite.empty() ? "all values are finite\n"
                                               : "all other values are finite\n";
  text += left_out_text(not_finite);
  text += heading("largest change", changes.largest.size(), count);
  if (!changes.largest.empty()) text += changes_table(changes, count);
  text += heading("dead", changes.dead.size(), count);
  if (!changes.dead.empty()) text += dead_table(changes, count);
  text += heading("exploding", changes.exploding.size(), count);
  if (!changes.exploding.empty()) text += exploding_table(changes, count);
  return text;
}

OrderedJson top_json(const Run& run, const LayerChanges& changes, std::size_t count,
                     const Problems& problems) {
  const auto& first = changes.not_finite.first;
  return {{"schema_version", kJsonSchemaVersion},
          {"run", to_json(run)},
          {"read", to_json(changes.not_finite.extent)},
          {"first_not_finite", first ? to_json(*first) : OrderedJson(nullptr)},
          {"always_infinite", left_out_json(changes.not_finite)},
          {"layers", changes.layers},
          {"changed_layers", changes.largest.size()},
          {"largest_change", list_json(changes.largest, count, change_json)},
          {"dead_layers", changes.dead.size()},
          {"dead", list_json(changes.dead, count, dead_json)},
          {"exploding_layers", changes.exploding.size()},
          {"exploding", list_json(changes.exploding, count, exploding_json)},
          {"left_out", to_json(problems)}};
}

struct TopRequest : RunReportRequest {
  std::int64_t count = 8;
};

class TopSubcommand : public SubcommandFor<TopRequest> {
 public:
  std::string usage() const override { return "top [RUN] [--run ID] [--flight] [--count N] [--json]"; }
  std::string summary() const override {
    return "Show the layers that stand out: largest change, not finite, dead, exploding";
  }
  std::string details() const override {
    return "The size of a tensor is its norm, else the largest magnitude of min and max, else |mean|.\n"
           "  change     by what factor the size differs from that of the collected step before, up or\n"
           "             down; sizes count as at least 1e-6 of the largest one before\n"
           "  dead       the last 2 or more steps have a size of 0, or at most 1e-6 of the largest one\n"
           "  exploding  the median of the last 3 sizes is at least 10 times the median of the first 5\n"
           "\n"
           "examples:\n"
           "  gradmonctl analyse top monitor_output\n"
           "  gradmonctl analyse top monitor_output --run 1a2b3c4d --count 20";
  }
  Arguments arguments() override {
    Argument count{"--count", &request().count, "entries of each list (default: 8; fewer on a small screen)",
                   "N"};
    count.least = 1;
    return report_arguments(request(), {std::move(count)});
  }
  int perform(const Console& console) override {
    return print_run_report(request(), console, [&](const Run& run, Problems& problems) {
      const LayerChanges changes = find_layer_changes(run, problems);
      RunReport report;
      report.rows = changes.not_finite.extent.rows;
      report.json = [this, &run, &problems, changes] {
        return top_json(run, changes, static_cast<std::size_t>(request().count), problems);
      };
      report.text = [this, &run, &console, changes] { return text_for(console.screen, run, changes); };
      return report;
    });
  }

 private:
  // With as many entries of each list as fit.
  std::string text_for(const std::optional<Screen>& screen, const Run& run,
                       const LayerChanges& changes) const {
    const auto asked = static_cast<std::size_t>(request().count);
    if (!screen) return top_text(run, changes, asked);
    for (std::size_t count = std::min(asked, screen->rows);; --count) {
      std::string text = top_text(run, changes, count);
      const std::string shown = folded_to_width(text, screen->columns);
      const auto lines = static_cast<std::size_t>(std::count(shown.begin(), shown.end(), '\n'));
      if (count <= 1 || lines < screen->rows) return text;
    }
  }
};

}  // namespace

std::unique_ptr<Subcommand> top_subcommand() { return std::make_unique<TopSubcommand>(); }

}  // namespace gradmon
