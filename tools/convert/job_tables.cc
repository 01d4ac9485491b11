// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/job_tables.h"

#include <initializer_list>

namespace gradmon {
namespace {

constexpr const char* kTables = R"(
CREATE TABLE job_about (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE job_runs (
  run_id TEXT NOT NULL, output_dir TEXT NOT NULL, started TEXT NOT NULL, world_size INTEGER,
  revisions_left_out INTEGER NOT NULL, scopes TEXT, PRIMARY KEY (run_id, output_dir)) WITHOUT ROWID;
CREATE TABLE job_versions (
  run_id TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (run_id, name)) WITHOUT ROWID;
CREATE TABLE job_ranks (
  run_id TEXT NOT NULL, rank INTEGER NOT NULL, host TEXT, pid INTEGER, directory TEXT, rows INTEGER NOT NULL,
  first_step INTEGER, last_step INTEGER, PRIMARY KEY (run_id, rank)) WITHOUT ROWID;
CREATE TABLE job_revisions (
  run_id TEXT NOT NULL, revision INTEGER NOT NULL, effective_step INTEGER NOT NULL, is_on INTEGER NOT NULL,
  cause TEXT NOT NULL, by TEXT NOT NULL, config TEXT NOT NULL, PRIMARY KEY (run_id, revision)) WITHOUT ROWID;
CREATE TABLE job_problems (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
)";

constexpr std::initializer_list<std::pair<const char*, const char*>> kAbout = {
    {"job_runs",
     "the starts of the job: id, where its output was, when it began, number of ranks, the scope of "
     "each parameter on rank 0 (JSON)"},
    {"job_versions", "of gradmon, torch and others, in each run"},
    {"job_ranks",
     "the ranks of each run: host, process, the newest directory, the rows that were taken from all "
     "of its directories and their steps; a rank without a directory has written nothing"},
    {"job_revisions",
     "the plans of each run: from which step on, on or off, why, by whom, and the config (JSON)"},
    {"job_gaps",
     "steps of which a rank has no row of a metric although another rank has (missing 'step'), or "
     "fewer rows than in its fullest step (missing 'rows'): rows that were dropped, or targets that "
     "took no part"},
    {"job_problems",
     "what could not be read of the job's output, with file and line; the last one counts the "
     "others"},
    {"v_metrics", "all values: rank, step, metric, target, vpp_stage, micro_step, op, value; NULL is NaN"},
    {"v_nonfinite", "the values that are not finite"},
    {"v_layer_step", "the targets of a layer together"}};

SqliteValue text(const std::string& value) { return SqliteValue::of(std::string_view(value)); }
SqliteValue text_or_null(const std::string& value) { return value.empty() ? SqliteValue{} : text(value); }
SqliteValue known(std::int64_t value) { return value < 0 ? SqliteValue{} : SqliteValue::of(value); }

// Several places may hold one rank of a run, each with some of its properties.
constexpr const char* kJoinRanks =
    " ON CONFLICT DO UPDATE SET host = coalesce(host, excluded.host), pid = coalesce(pid, excluded.pid), "
    "directory = coalesce(excluded.directory, directory), rows = rows + excluded.rows, "
    "first_step = coalesce(min(first_step, excluded.first_step), first_step, excluded.first_step), "
    "last_step = coalesce(max(last_step, excluded.last_step), last_step, excluded.last_step)";

// Inserts rows into one table; remembers the first error.
class Inserter {
 public:
  // `known`: the action if the row exists.
  Inserter(SqliteDatabase& database, const std::string& table, std::size_t columns,
           const std::string& known = " ON CONFLICT DO NOTHING") {
    std::string places;
    for (std::size_t i = 0; i < columns; ++i) places += i == 0 ? "?" : ", ?";
    auto prepared = database.prepare("INSERT INTO " + table + " VALUES (" + places + ")" + known);
    if (prepared) {
      statement_ = std::move(*prepared);
    } else {
      done_ = tl::unexpected(prepared.error());
    }
  }

  void add(std::initializer_list<SqliteValue> values) {
    if (!done_) return;
    int parameter = 0;
    for (const SqliteValue& value : values) statement_.bind(parameter++, value);
    done_ = statement_.run();
  }
  const SqliteResult<void>& done() const { return done_; }

 private:
  SqliteStatement statement_;
  SqliteResult<void> done_;
};

// Adds every rank that the run's file names, that has a directory, or that the number of ranks implies.
void add_ranks(Inserter& table, const JobRun& run, std::size_t index, const JobExtents& extents) {
  constexpr std::int64_t kMostImplied = 1'000'000;
  std::map<std::int64_t, RunNotes::RankNote> hosts;
  std::map<std::int64_t, std::string> directories;
  for (std::int64_t rank = 0; rank < run.notes.world_size && rank < kMostImplied; ++rank) directories[rank];
  for (const RunNotes::RankNote& note : run.notes.ranks) directories[(hosts[note.rank] = note).rank];
  for (const RankDirectory& rank : run.run.ranks) directories[rank.rank] = rank.path.string();
  for (const auto& [rank, directory] : directories) {
    const auto extent = extents.find({index, static_cast<int>(rank)});
    const StartExtent taken = extent == extents.end() ? StartExtent{} : extent->second;
    const RunNotes::RankNote host = hosts.count(rank) > 0 ? hosts[rank] : RunNotes::RankNote{};
    table.add({text(run.run.id), SqliteValue::of(rank), text_or_null(host.host),
               host.pid == 0 ? SqliteValue{} : SqliteValue::of(host.pid), text_or_null(directory),
               SqliteValue::of(static_cast<std::int64_t>(taken.rows)), known(taken.first_step),
               known(taken.last_step)});
  }
}

}  // namespace

SqliteResult<void> write_job_tables(SqliteDatabase& database, const std::vector<JobRun>& runs,
                                    const JobExtents& extents, const Problems& problems,
                                    const std::string& version) {
  if (auto made = database.run(kTables); !made) return made;
  Inserter about(database, "job_about", 2), of_runs(database, "job_runs", 6),
      versions(database, "job_versions", 3), ranks(database, "job_ranks", 8, kJoinRanks),
      revisions(database, "job_revisions", 7), of_problems(database, "job_problems", 2);
  about.add({text("made_by"), text("gradmonctl convert merge " + version)});
  for (const auto& [name, what] : kAbout) about.add({text(name), text(what)});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunNotes& notes = runs[i].notes;
    const std::string& id = runs[i].run.id;
    of_runs.add({text(id), text(runs[i].output_dir.string()), text(runs[i].run.started),
                 known(notes.world_size), SqliteValue::of(notes.revisions_left_out),
                 text_or_null(notes.scopes)});
    for (const auto& [name, of_name] : notes.versions) versions.add({text(id), text(name), text(of_name)});
    add_ranks(ranks, runs[i], i, extents);
    for (const RunNotes::RevisionNote& one : notes.revisions)
      revisions.add({text(id), SqliteValue::of(one.revision), SqliteValue::of(one.effective_step),
                     SqliteValue::of(std::int64_t{one.on}), text(one.cause), text(one.by), text(one.config)});
  }
  std::int64_t number = 0;
  for (const std::string& message : problems.messages())
    of_problems.add({SqliteValue::of(++number), text(message)});
  for (const Inserter* table : {&about, &of_runs, &versions, &ranks, &revisions, &of_problems}) {
    if (!table->done()) return table->done();
  }
  return {};
}

}  // namespace gradmon
