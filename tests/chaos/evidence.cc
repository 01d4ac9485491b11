// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/evidence.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "control/net/directory_register.h"
#include "tools/demo_report/outcome.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Steps = std::set<std::int64_t>;

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

std::vector<Verdict> verdicts_of(const fs::path& epoch) {
  std::vector<Verdict> verdicts;
  for (std::uint64_t revision = 1; fs::exists(epoch / std::to_string(revision)); ++revision) {
    auto verdict = DirectoryRegister::read(epoch / std::to_string(revision));
    if (!verdict) throw std::runtime_error(verdict.error());
    verdicts.push_back(std::move(*verdict));
  }
  return verdicts;
}

std::vector<Call> calls_of(const Life& life) {
  std::vector<Call> calls;
  std::ifstream in(life.step_log);
  for (Call call; in >> call.step >> call.called >> call.back;) calls.push_back(call);
  return calls;
}

// The run directories of an epoch, by their own notes.
std::vector<fs::path> run_directories_of(const fs::path& output_dir, const std::string& epoch) {
  std::vector<fs::path> found;
  for (const auto& [rank, directory] : run_directories(output_dir)) {
    if (read_text(directory / "switches.jsonl").find(epoch) != std::string::npos) found.push_back(directory);
  }
  return found;
}

class LifeCheck {
 public:
  LifeCheck(const MortalJob& job, const Life& life, const std::string& epoch,
            const std::vector<Verdict>& commits, Evidence& evidence)
      : job_(job),
        life_(life),
        epoch_(epoch),
        commits_(commits),
        evidence_(evidence),
        calls_(calls_of(life)) {
    begun_ = calls_.empty() ? life.first_step : calls_.back().step + 1;
    read_notes();
  }

  void check_notes() {
    for (const Note& note : notes_) {
      const Verdict* commit = committed(note.revision);
      if (commit == nullptr) {
        breach("put " + text_of(note.revision) + " in force, which was never committed");
      } else if (commit->effective != note.step) {
        breach("put " + text_of(note.revision) + " in force at step " + std::to_string(note.step.value) +
               ", agreed was " + std::to_string(commit->effective.value));
      }
    }
    evidence_.switches_noted += notes_.size();
    const std::string log = read_text(life_.log);
    bool directory_made = false;
    for (const Verdict& commit : commits_) {
      if (commit.effective.value > begun_) break;
      directory_made = directory_made || commit.plan->on;
      if (noted(commit.revision) || !directory_made) continue;
      if (log.find("missed " + text_of(commit.revision) + ",") != std::string::npos) {
        evidence_.missed.emplace(life_.rank, commit.revision.value);
      } else if (!life_.lives() && *life_.code != 0 && is_last_begun(commit)) {
        last_sure_ = commit.effective.value - 1;  // Killed before it could note it.
      } else {
        breach("ran step " + std::to_string(commit.effective.value) + " without " + text_of(commit.revision) +
               " and did not say so");
      }
    }
  }

  // The steps that it was to collect under what it noted, until `last`.
  Steps meant(std::int64_t last) const {
    Steps steps;
    for (std::size_t i = 0; i < notes_.size(); ++i) {
      const Verdict* commit = committed(notes_[i].revision);
      if (commit == nullptr) continue;
      const Schedule schedule = schedule_of(*commit->plan, commit->effective);
      const std::int64_t next = i + 1 < notes_.size() ? notes_[i + 1].step.value : last + 1;
      const std::int64_t end = std::min(next, last + 1);
      for (std::int64_t t = notes_[i].step.value; t < end; ++t) {
        if (schedule.collects(Step{t})) steps.insert(t);
      }
    }
    return steps;
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

  std::int64_t begun() const { return begun_; }
  std::int64_t last_sure() const { return last_sure_.value_or(begun_); }

 private:
  void read_notes() {
    // When the next process of this rank began; of a later launch it takes nobody's place.
    std::int64_t replaced = INT64_MAX;
    for (const Life& other : job_.lives()) {
      if (other.launch == life_.launch && other.rank == life_.rank && other.started > life_.started)
        replaced = std::min(replaced, other.started);
    }
    for (const fs::path& directory : run_directories_of(job_.output_dir(life_.rank), epoch_)) {
      std::ifstream in(directory / "switches.jsonl");
      for (std::string line; std::getline(in, line);) {
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_object() || json.value("epoch", "") != epoch_) continue;
        const std::int64_t at = json.at("at");
        if (at < life_.started || at >= replaced) continue;
        notes_.push_back(
            {Revision{json.at("revision").get<std::uint64_t>()}, Step{json.at("step").get<std::int64_t>()}});
      }
    }
  }

  const Verdict* committed(Revision revision) const {
    const auto found = std::find_if(commits_.begin(), commits_.end(),
                                    [&](const Verdict& commit) { return commit.revision == revision; });
    return found == commits_.end() ? nullptr : &*found;
  }
  bool noted(Revision revision) const {
    return std::any_of(notes_.begin(), notes_.end(),
                       [&](const Note& note) { return note.revision == revision; });
  }
  bool is_last_begun(const Verdict& commit) const {
    return std::none_of(commits_.begin(), commits_.end(), [&](const Verdict& other) {
      return other.revision > commit.revision && other.effective.value <= begun_;
    });
  }
  void breach(const std::string& what) { evidence_.breaches.push_back(named(life_) + " " + what); }

  const MortalJob& job_;
  const Life& life_;
  const std::string& epoch_;
  const std::vector<Verdict>& commits_;
  Evidence& evidence_;
  const std::vector<Call> calls_;
  std::vector<Note> notes_;
  std::int64_t begun_ = 0;  // the last step that it surely began
  std::optional<std::int64_t> last_sure_;
};

Steps collected(const MortalJob& job, int rank, const std::string& epoch) {
  Steps steps;
  for (const fs::path& directory : run_directories_of(job.output_dir(rank), epoch)) {
    for (const auto& [step, rows] : rows_in_directory(directory, "grad_reduced")) steps.insert(step);
  }
  return steps;
}

std::string difference(const Steps& from, const Steps& without) {
  std::string text;
  int count = 0;
  for (const std::int64_t step : from) {
    if (without.count(step) == 0 && ++count <= 10) text += " " + std::to_string(step);
  }
  return count > 10 ? text + " …" : text;
}

}  // namespace

Evidence gather(const MortalJob& job, const std::string& launch) {
  Evidence evidence;
  const std::string epoch = job.epochs().at(launch);
  std::vector<Verdict> commits;
  for (Verdict& verdict : verdicts_of(job.register_dir() / epoch)) {
    if (!verdict.commit()) {
      evidence.aborts += 1;
    } else {
      commits.push_back(std::move(verdict));
    }
  }
  evidence.commits = commits.size();
  std::map<int, Steps> allowed;
  std::map<int, Steps> demanded;  // of the newest process
  for (const Life& life : job.lives()) {
    if (life.launch != launch) continue;
    LifeCheck check(job, life, epoch, commits, evidence);
    check.check_notes();
    check.check_calls();
    allowed[life.rank].merge(check.meant(check.begun()));
    const Steps rows = collected(job, life.rank, epoch);
    // What had not reached the disk died with a process that was killed.
    const bool killed = !life.lives() && *life.code != 0;
    const std::int64_t written = rows.empty() ? -1 : *rows.rbegin();
    demanded[life.rank] = check.meant(killed ? std::min(check.last_sure(), written) : check.begun() - 1);
  }
  for (const auto& [rank, steps] : demanded) {
    const Steps rows = collected(job, rank, epoch);
    if (const std::string lost = difference(steps, rows); !lost.empty())
      evidence.breaches.push_back("rank " + std::to_string(rank) + " has no rows of steps" + lost);
    if (const std::string more = difference(rows, allowed[rank]); !more.empty())
      evidence.breaches.push_back("rank " + std::to_string(rank) + " has rows of steps" + more);
  }
  return evidence;
}

}  // namespace gradmon
