// SPDX-License-Identifier: Apache-2.0
// gradmon-demo-report OUTPUT_DIR WORLD_SIZE: prints a table of the revisions: the step at which
// each rank applied a revision, and the number of its rows. Exit code 1 if ranks disagree with
// each other or with the verdicts.
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "control/host/history_file.h"
#include "tests/demo/outcome.h"

namespace gradmon {
namespace {

constexpr char kKind[] = "grad_reduced";

std::string applied_text(const HistoryEntry& entry, int world, bool& agree) {
  std::ostringstream text;
  for (int rank = 0; rank < world; ++rank) {
    const auto at = entry.applied.find(rank);
    const bool good = at != entry.applied.end() && at->second == entry.effective_step;
    agree = agree && good;
    text << std::setw(7) << (at == entry.applied.end() ? std::string("-") : std::to_string(at->second));
  }
  return text.str();
}

std::int64_t rows_between(const std::map<int, RowsByStep>& rows, std::int64_t first, std::int64_t end) {
  std::int64_t sum = 0;
  for (const auto& [rank, own] : rows) {
    for (auto at = own.lower_bound(first); at != own.lower_bound(end); ++at) sum += at->second;
  }
  return sum;
}

bool same_steps(const std::map<int, RowsByStep>& rows, const std::set<std::int64_t>& agreed, int world) {
  bool same = rows.size() == static_cast<std::size_t>(world);
  for (const auto& [rank, own] : rows) {
    std::set<std::int64_t> steps;
    for (const auto& [step, count] : own) steps.insert(step);
    if (steps == agreed) continue;
    same = false;
    std::cout << "rank " << rank << ": its files hold " << steps.size() << " steps, agreed were "
              << agreed.size() << '\n';
  }
  return same;
}

int report(const std::filesystem::path& output_dir, int world) {
  const auto history = history_from_files(output_dir);
  if (!history) {
    std::cout << history.error() << '\n';
    return 1;
  }
  const auto rows = rows_in_files(output_dir, kKind);
  const std::vector<HistoryEntry> commits = commits_in_history(output_dir);
  std::cout << "revision  cause  what    step applied by rank";
  std::cout << std::setw(8 * (world > 3 ? world - 3 : 1)) << "rows\n";
  bool agree = !commits.empty();
  for (const HistoryEntry& entry : *history) {
    if (entry.verdict != "commit") continue;
    std::int64_t end = kNever.value;
    for (const HistoryEntry& commit : commits) {
      if (commit.effective_step > entry.effective_step) end = std::min(end, commit.effective_step);
    }
    std::cout << std::setw(8) << entry.revision.value << "  " << std::left << std::setw(7) << entry.cause
              << std::setw(4) << (entry.on ? "on" : "off") << std::right << applied_text(entry, world, agree)
              << std::setw(9) << rows_between(rows, entry.effective_step, end) << '\n';
  }
  agree = same_steps(rows, steps_agreed(commits, last_known_step(commits, rows)), world) && agree;
  std::cout << (agree ? "every rank switched at the same steps, and its files hold exactly the agreed steps\n"
                      : "RANKS DISAGREE\n");
  return agree ? 0 : 1;
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  if (argc != 3 || std::atoi(argv[2]) < 1) {
    std::cerr << "usage: gradmon-demo-report OUTPUT_DIR WORLD_SIZE\n";
    return 2;
  }
  return gradmon::report(argv[1], std::atoi(argv[2]));
}
