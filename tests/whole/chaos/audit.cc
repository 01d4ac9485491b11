// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/chaos/audit.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "control/host/history_file.h"
#include "tests/support/outcome.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Steps = std::set<std::int64_t>;

// A rank reports once a second; the rest allows for a slow machine.
constexpr std::int64_t kUnreportedBeforeKill = 3'000'000;  // us

// A line of switches.jsonl. Revision 0: off by a lapse.
struct Note {
  Revision revision;
  Step step;
};

struct Call {
  std::int64_t step = 0;
  std::int64_t called = 0;  // us
  std::int64_t back = 0;
};

std::string named(const RankRun& run) {
  return "rank " + std::to_string(run.rank) + " (pid " + std::to_string(run.pid) + ")";
}

std::string text_of(Revision revision) { return "revision " + std::to_string(revision.value); }

std::vector<Call> calls_of(const RankRun& run) {
  std::vector<Call> calls;
  std::ifstream in(run.step_log);
  for (Call call; in >> call.step >> call.called >> call.back;) calls.push_back(call);
  return calls;
}

std::string list_of(const Steps& steps) {
  std::string text;
  int count = 0;
  for (const std::int64_t step : steps) {
    if (++count <= 10) text += " " + std::to_string(step);
  }
  return count > 10 ? text + " …" : text;
}

Steps without(const Steps& from, const Steps& taken) {
  Steps left;
  std::set_difference(from.begin(), from.end(), taken.begin(), taken.end(), std::inserter(left, left.end()));
  return left;
}

// Checks one process of a rank against the commits of its launch. Its notes say which plan it
// had in force, and when: expected_steps_ are the steps that those plans collect. Its rank must
// have rows of these steps, except
// - the last step before a lapse, whose rows may have been dropped;
// - the step that the process was in when it ended;
// - if it was killed: the steps after its last row, which may not have been on disk yet.
// A row that no process of the rank expected is a violation too: audit_launch() checks that.
class RunAudit {
 public:
  RunAudit(const KillableJob& job, const RankRun& run, const std::string& epoch,
           const std::vector<HistoryEntry>& commits, Audit& audit)
      : job_(job), run_(run), epoch_(epoch), commits_(commits), audit_(audit), calls_(calls_of(run)) {
    last_begun_step_ = calls_.empty() ? run.first_step : calls_.back().step + 1;
    read_run_directories();
  }

  void check() {
    if (!run_.running() && !run_.killed && *run_.code != 0)
      add_violation("ended by itself, with exit code " + std::to_string(*run_.code));
    check_notes();
    check_rows();
    check_calls();
  }
  const Steps& expected_steps() const { return expected_steps_; }
  const Steps& rows_of_rank() const { return rows_; }

 private:
  void check_notes() {
    for (const Note& note : notes_) {
      if (note.revision == Revision{}) {
        audit_.lapses.emplace(run_.rank, note.step.value);
        continue;
      }
      const HistoryEntry* commit = committed(note.revision);
      if (commit == nullptr) {
        add_violation("put " + text_of(note.revision) + " in force, which was never committed");
      } else if (commit->on ? commit->effective_step != note.step.value
                            : commit->effective_step > note.step.value) {
        add_violation("put " + text_of(note.revision) + " in force at step " +
                      std::to_string(note.step.value) + ", agreed was " +
                      std::to_string(commit->effective_step));
      }
    }
    for (const HistoryEntry& commit : commits_) {
      if (commit.on && collects_before_the_next(commit) && skipped(commit))
        add_violation("ran step " + std::to_string(commit.effective_step) + " without " +
                      text_of(commit.revision) + " and had not gone off");
    }
  }

  // A plan that is on is noted with its first rows, so a plan with no step to collect is never noted.
  bool collects_before_the_next(const HistoryEntry& commit) const {
    std::int64_t next = last_begun_step_;
    for (const HistoryEntry& other : commits_) {
      if (other.revision > commit.revision) next = std::min(next, other.effective_step);
    }
    for (std::int64_t t = commit.effective_step; t < next; ++t) {
      if (commit.steps.collects(Step{t})) return true;
    }
    return false;
  }

  // True if the rank ran the effective step under an older plan without a lapse. A rank that has just
  // joined or has lapsed is off, and waits for a later plan.
  bool skipped(const HistoryEntry& commit) const {
    const auto is_it = [&](const Note& note) { return note.revision == commit.revision; };
    if (commit.effective_step > last_begun_step_ - 1 || std::any_of(notes_.begin(), notes_.end(), is_it))
      return false;
    const auto next = std::find_if(notes_.begin(), notes_.end(),
                                   [&](const Note& note) { return note.step.value > commit.effective_step; });
    // A rank that an older plan had switched off notes no lapse, and collects nothing.
    const HistoryEntry* before = next == notes_.begin() ? nullptr : committed(std::prev(next)->revision);
    if (before == nullptr || !before->on) return false;
    const bool lapsed_by_it = next != notes_.end() && next->revision == Revision{};
    return !lapsed_by_it && !run_.killed;
  }

  // Each plan that it had in force has its rows, and no other plan had replaced it.
  void check_rows() {
    Steps optional_steps;
    for (std::size_t i = 0; i < notes_.size(); ++i) {
      // The step in which it lapsed does not count: its rows may be missing.
      if (notes_[i].revision == Revision{}) optional_steps.insert(notes_[i].step.value - 1);
      const HistoryEntry* commit = committed(notes_[i].revision);
      if (commit == nullptr || !commit->on) continue;
      const std::int64_t next = i + 1 < notes_.size() ? notes_[i + 1].step.value : last_begun_step_ + 1;
      for (std::int64_t t = notes_[i].step.value; t < next; ++t) {
        if (!commit->steps.collects(Step{t})) continue;
        expected_steps_.insert(t);
        if (rows_.count(t) > 0) check_not_replaced(*commit, t);
      }
    }
    Steps lost = without(without(expected_steps_, rows_), optional_steps);
    lost.erase(lost.lower_bound(last_begun_step_), lost.end());  // The current step has not ended.
    if (run_.killed) {
      // Rows that were not on disk yet were lost with the process.
      const Steps written = without(expected_steps_, without(expected_steps_, rows_));
      lost.erase(lost.upper_bound(written.empty() ? -1 : *written.rbegin()), lost.end());
    }
    if (!lost.empty()) add_violation("has no rows of steps" + list_of(lost));
  }

  void check_not_replaced(const HistoryEntry& commit, std::int64_t step) {
    const auto newer = std::find_if(commits_.begin(), commits_.end(), [&](const HistoryEntry& other) {
      return other.on && other.revision > commit.revision && other.effective_step <= step;
    });
    if (newer == commits_.end()) return;
    if (shortly_before_kill(step)) {
      audit_.stale_steps_before_kill += 1;
    } else {
      add_violation("collected step " + std::to_string(step) + " under " + text_of(commit.revision) +
                    " although " + text_of(newer->revision) + " held from " +
                    std::to_string(newer->effective_step));
    }
  }

  bool shortly_before_kill(std::int64_t step) const {
    if (!run_.killed) return false;
    const auto call =
        std::find_if(calls_.begin(), calls_.end(), [&](const Call& c) { return c.step == step; });
    return call == calls_.end() || call->called > run_.ended - kUnreportedBeforeKill;
  }

  void check_calls() {
    for (std::size_t i = 1; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      std::int64_t took = call.back - call.called;
      for (const auto& [from, to] : run_.stopped) {
        took -= std::max<std::int64_t>(0, std::min(to, call.back) - std::max(from, call.called));
      }
      if (took <= audit_.longest_call.count()) continue;
      audit_.longest_call = std::chrono::microseconds(took);
      audit_.slowest = named(run_) + " after step " + std::to_string(call.step);
    }
  }

  // When the next process of this rank in this launch began; INT64_MAX: there is none.
  std::int64_t replaced_at() const {
    std::int64_t at = INT64_MAX;
    for (const RankRun& other : job_.runs()) {
      if (other.launch == run_.launch && other.rank == run_.rank && other.started > run_.started)
        at = std::min(at, other.started);
    }
    return at;
  }

  // Of its rank. Earlier and later processes of the rank wrote there too.
  void read_run_directories() {
    const std::int64_t until = replaced_at();
    for (const auto& [rank, directory] : run_directories(job_.output_dir(run_.launch))) {
      if (rank != run_.rank) continue;
      std::ifstream in(directory / "switches.jsonl");
      std::map<std::int64_t, bool> of_this_epoch;  // by the first step in force
      for (std::string line; std::getline(in, line);) {
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_object()) continue;
        const Step step{json.at("step").get<std::int64_t>()};
        of_this_epoch[step.value] = json.value("epoch", "") == epoch_;
        const std::int64_t at = json.at("at");
        if (!of_this_epoch[step.value] || at < run_.started || at >= until) continue;
        notes_.push_back({Revision{json.at("revision").get<std::uint64_t>()}, step});
      }
      for (const auto& [step, rows] : rows_in_directory(directory, "grad_reduced")) {
        const auto after = of_this_epoch.upper_bound(step);
        if (after == of_this_epoch.begin() || std::prev(after)->second) rows_.insert(step);
      }
    }
  }

  const HistoryEntry* committed(Revision revision) const {
    const auto found = std::find_if(commits_.begin(), commits_.end(),
                                    [&](const HistoryEntry& commit) { return commit.revision == revision; });
    return found == commits_.end() ? nullptr : &*found;
  }
  void add_violation(const std::string& what) { audit_.violations.push_back(named(run_) + " " + what); }

  const KillableJob& job_;
  const RankRun& run_;
  const std::string& epoch_;
  const std::vector<HistoryEntry>& commits_;
  Audit& audit_;
  const std::vector<Call> calls_;
  std::vector<Note> notes_;
  Steps rows_;                        // of all processes of its rank
  Steps expected_steps_;              // must have rows, by its notes
  std::int64_t last_begun_step_ = 0;  // the last step that it surely began
};

}  // namespace

Audit audit_launch(KillableJob& job, const std::string& launch) {
  job.collect_exit_codes();
  Audit audit;
  const fs::path output = job.output_dir(launch);
  for (const HistoryEntry& entry : history_from_files(output).value_or(std::vector<HistoryEntry>{})) {
    audit.aborts += entry.verdict == "abort" ? 1 : 0;
  }
  const std::vector<HistoryEntry> commits = commits_in_history(output);
  audit.commits = commits.size();
  std::map<int, Steps> expected_steps;
  std::map<int, Steps> rows;
  for (const RankRun& run : job.runs()) {
    if (run.launch != launch) continue;
    RunAudit check(job, run, job.epochs().at(launch), commits, audit);
    check.check();
    expected_steps[run.rank].insert(check.expected_steps().begin(), check.expected_steps().end());
    rows[run.rank] = check.rows_of_rank();
  }
  for (const auto& [rank, written] : rows) {
    if (const Steps more = without(written, expected_steps[rank]); !more.empty())
      audit.violations.push_back("rank " + std::to_string(rank) + " has rows of steps" + list_of(more));
  }
  return audit;
}

}  // namespace gradmon
