// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>

#include "tools/analyse/commands/run_report.h"
#include "tools/analyse/commands/top_view.h"
#include "tools/gradmonctl/parse/subcommand.h"

namespace gradmon {
namespace {

constexpr std::size_t kLinesBesideLists = 14;

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
      report.text = [this, &run, &console, changes] { return top_text(run, changes, shown_count(console)); };
      return report;
    });
  }

 private:
  std::size_t shown_count(const Console& console) {
    const auto asked = static_cast<std::size_t>(request().count);
    if (!console.screen) return asked;
    const std::size_t room =
        console.screen->rows > kLinesBesideLists ? console.screen->rows - kLinesBesideLists : 0;
    return std::clamp<std::size_t>(room / 3, 1, asked);
  }
};

}  // namespace

std::unique_ptr<Subcommand> top_subcommand() { return std::make_unique<TopSubcommand>(); }

}  // namespace gradmon
