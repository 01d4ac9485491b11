// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/chaos/evidence.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "control/host/history_file.h"
#include "tools/demo_report/outcome.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Steps = std::set<std::int64_t>;

// A rank is heard once a second; the rest is this machine's.
constexpr std::int64_t kUnheardBeforeDeath = 3'000'000;  // us

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

std::string named(const Life& life) {
  return "rank " + std::to_string(life.rank) + " (pid " + std::to_string(life.pid) + ")";
}

std::string text_of(Revision revision) { return "revision " + std::to_string(revision.value); }

std::vector<Call> calls_of(const Life& life) {
  std::vector<Call> calls;
  std::ifstream in(life.step_log);
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

class LifeCheck {
 public:
  LifeCheck(const MortalJob& job, const Life& life, const std::string& epoch,
            const std::vector<HistoryEntry>& commits, Evidence& evidence)
      : job_(job),
        life_(life),
        epoch_(epoch),
        commits_(commits),
        evidence_(evidence),
        calls_(calls_of(life)) {
    begun_ = calls_.empty() ? life.first_step : calls_.back().step + 1;
    read_run_directories();
  }

  void check() {
    check_notes();
    check_rows();
    check_calls();
  }
  const Steps& meant() const { return meant_; }
  const Steps& rows_of_rank() const { return rows_; }

 private:
  void check_notes() {
    for (const Note& note : notes_) {
      if (note.revision == Revision{}) {
        evidence_.lapses.emplace(life_.rank, note.step.value);
        continue;
      }
      const HistoryEntry* commit = committed(note.revision);
      if (commit == nullptr) {
        breach("put " + text_of(note.revision) + " in force, which was never committed");
      } else if (commit->on ? commit->effective_step != note.step.value
                            : commit->effective_step > note.step.value) {
        breach("put " + text_of(note.revision) + " in force at step " + std::to_string(note.step.value) +
               ", agreed was " + std::to_string(commit->effective_step));
      }
    }
    for (const HistoryEntry& commit : commits_) {
      if (commit.on && collects_before_the_next(commit) && passed_over(commit))
        breach("ran step " + std::to_string(commit.effective_step) + " without " + text_of(commit.revision) +
               " and had not gone off");
    }
    evidence_.switches_noted += notes_.size();
  }

  // A plan that is on is noted with its first rows: a resync that has nothing left to collect, never.
  bool collects_before_the_next(const HistoryEntry& commit) const {
    std::int64_t next = begun_;
    for (const HistoryEntry& other : commits_) {
      if (other.revision > commit.revision) next = std::min(next, other.effective_step);
    }
    for (std::int64_t t = commit.effective_step; t < next; ++t) {
      if (commit.steps.collects(Step{t})) return true;
    }
    return false;
  }

  // Whoever has just come, or lapsed, waits to be brought in by a later one.
  bool passed_over(const HistoryEntry& commit) const {
    const auto is_it = [&](const Note& note) { return note.revision == commit.revision; };
    if (commit.effective_step > begun_ - 1 || std::any_of(notes_.begin(), notes_.end(), is_it)) return false;
    const auto next = std::find_if(notes_.begin(), notes_.end(), [&](const Note& note) {
      return note.step.value > commit.effective_step;
    });
    // Off by a plan it says nothing of a lapse, and collects nothing either.
    const HistoryEntry* before = next == notes_.begin() ? nullptr : committed(std::prev(next)->revision);
    if (before == nullptr || !before->on) return false;
    const bool lapsed_by_it = next != notes_.end() && next->revision == Revision{};
    return !lapsed_by_it && !life_.killed();
  }

  // Of the plans that it had in force: no other had replaced them, and their rows are there.
  void check_rows() {
    Steps may_lack;
    for (std::size_t i = 0; i < notes_.size(); ++i) {
      // A step in which it lapsed does not count, whatever it had collected.
      if (notes_[i].revision == Revision{}) may_lack.insert(notes_[i].step.value - 1);
      const HistoryEntry* commit = committed(notes_[i].revision);
      if (commit == nullptr || !commit->on) continue;
      const std::int64_t next = i + 1 < notes_.size() ? notes_[i + 1].step.value : begun_ + 1;
      for (std::int64_t t = notes_[i].step.value; t < next; ++t) {
        if (!commit->steps.collects(Step{t})) continue;
        meant_.insert(t);
        if (rows_.count(t) > 0) check_not_replaced(*commit, t);
      }
    }
    Steps lost = without(without(meant_, rows_), may_lack);
    lost.erase(lost.lower_bound(begun_), lost.end());  // The step at hand has not ended.
    if (life_.killed()) {
      // What had not reached the disk died with it.
      const Steps written = without(meant_, without(meant_, rows_));
      lost.erase(lost.upper_bound(written.empty() ? -1 : *written.rbegin()), lost.end());
    }
    if (!lost.empty()) breach("has no rows of steps" + list_of(lost));
  }

  void check_not_replaced(const HistoryEntry& commit, std::int64_t step) {
    const auto newer = std::find_if(commits_.begin(), commits_.end(), [&](const HistoryEntry& other) {
      return other.on && other.revision > commit.revision && other.effective_step <= step;
    });
    if (newer == commits_.end()) return;
    if (shortly_before_its_death(step)) {
      evidence_.ahead_of_its_death += 1;
    } else {
      breach("collected step " + std::to_string(step) + " under " + text_of(commit.revision) + " although " +
             text_of(newer->revision) + " held from " + std::to_string(newer->effective_step));
    }
  }

  bool shortly_before_its_death(std::int64_t step) const {
    if (!life_.killed()) return false;
    const auto call = std::find_if(calls_.begin(), calls_.end(), [&](const Call& c) { return c.step == step; });
    return call == calls_.end() || call->called > life_.ended - kUnheardBeforeDeath;
  }

  void check_calls() {
    for (std::size_t i = 1; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      std::int64_t took = call.back - call.called;
      for (const auto& [from, to] : life_.stopped) {
        took -= std::max<std::int64_t>(0, std::min(to, call.back) - std::max(from, call.called));
      }
      if (took <= evidence_.longest_call.count()) continue;
      evidence_.longest_call = std::chrono::microseconds(took);
      evidence_.slowest = named(life_) + " after step " + std::to_string(call.step);
    }
  }

  // When the next process of this rank began; of a later launch it takes nobody's place.
  std::int64_t replaced() const {
    std::int64_t at = INT64_MAX;
    for (const Life& other : job_.lives()) {
      if (other.launch == life_.launch && other.rank == life_.rank && other.started > life_.started)
        at = std::min(at, other.started);
    }
    return at;
  }

  // Its rank's, in which processes before and after it have noted and written, too.
  void read_run_directories() {
    const std::int64_t until = replaced();
    for (const auto& [rank, directory] : run_directories(job_.output_dir(life_.launch))) {
      if (rank != life_.rank) continue;
      std::ifstream in(directory / "switches.jsonl");
      std::map<std::int64_t, bool> of_this_epoch;  // by the step from which on it was in force
      for (std::string line; std::getline(in, line);) {
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_object()) continue;
        const Step step{json.at("step").get<std::int64_t>()};
        of_this_epoch[step.value] = json.value("epoch", "") == epoch_;
        const std::int64_t at = json.at("at");
        if (!of_this_epoch[step.value] || at < life_.started || at >= until) continue;
        notes_.push_back({Revision{json.at("revision").get<std::uint64_t>()}, step});
      }
      for (const auto& [step, rows] : rows_in_directory(directory, "grad_reduced")) {
        const auto after = of_this_epoch.upper_bound(step);
        if (after == of_this_epoch.begin() || std::prev(after)->second) rows_.insert(step);
      }
    }
  }

  const HistoryEntry* committed(Revision revision) const {
    const auto found = std::find_if(commits_.begin(), commits_.end(), [&](const HistoryEntry& commit) {
      return commit.revision == revision;
    });
    return found == commits_.end() ? nullptr : &*found;
  }
  void breach(const std::string& what) { evidence_.breaches.push_back(named(life_) + " " + what); }

  const MortalJob& job_;
  const Life& life_;
  const std::string& epoch_;
  const std::vector<HistoryEntry>& commits_;
  Evidence& evidence_;
  const std::vector<Call> calls_;
  std::vector<Note> notes_;
  Steps rows_;   // of all processes of its rank
  Steps meant_;  // to have rows, by what it noted
  std::int64_t begun_ = 0;  // the last step that it surely began
};

}  // namespace

Evidence gather(const MortalJob& job, const std::string& launch) {
  Evidence evidence;
  const fs::path output = job.output_dir(launch);
  for (const HistoryEntry& entry : history_from_files(output).value_or(std::vector<HistoryEntry>{})) {
    evidence.aborts += entry.verdict == "abort" ? 1 : 0;
  }
  const std::vector<HistoryEntry> commits = commits_in_history(output);
  evidence.commits = commits.size();
  std::map<int, Steps> meant;
  std::map<int, Steps> rows;
  for (const Life& life : job.lives()) {
    if (life.launch != launch) continue;
    LifeCheck check(job, life, job.epochs().at(launch), commits, evidence);
    check.check();
    meant[life.rank].insert(check.meant().begin(), check.meant().end());
    rows[life.rank] = check.rows_of_rank();
  }
  for (const auto& [rank, written] : rows) {
    if (const Steps more = without(written, meant[rank]); !more.empty())
      evidence.breaches.push_back("rank " + std::to_string(rank) + " has rows of steps" + list_of(more));
  }
  return evidence;
}

}  // namespace gradmon
