// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/convert_to_database.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tools/convert/conversion_run.h"
#include "tools/convert/row_records.h"
#include "tools/convert/stored_scopes.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/sink.h"
#include "writers/sinks/step_writer.h"

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kLookAtMeter{50};

// Records of one kind, with ascending steps.
struct RecordBatch {
  static constexpr std::size_t kRecords = 2048;
  Layout layout;
  std::vector<Record> records;
};

// Passes the records of one task from the reading thread to the writing thread. Bounded.
class RecordChannel {
 public:
  static constexpr std::size_t kBatches = 4;

  explicit RecordChannel(const ConversionMeter& meter) : meter_(meter) {}

  const std::shared_ptr<NameTable>& names() const { return names_; }

  // Reader. Waits for room. Returns false if the meter was stopped.
  bool push(RecordBatch batch);
  // No further batch follows.
  void close();

  // Writer. Waits for a batch. nullopt: all batches are taken, or the meter was stopped.
  std::optional<RecordBatch> pop();

 private:
  // Constant after construction.
  const ConversionMeter& meter_;
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RecordBatch> batches_;  // guarded by mutex_; the oldest first
  bool closed_ = false;               // guarded by mutex_
};

bool RecordChannel::push(RecordBatch batch) {
  std::unique_lock lock(mutex_);
  while (batches_.size() >= kBatches && !meter_.stop) changed_.wait_for(lock, kLookAtMeter);
  if (meter_.stop) return false;
  batches_.push_back(std::move(batch));
  changed_.notify_all();
  return true;
}

void RecordChannel::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::optional<RecordBatch> RecordChannel::pop() {
  std::unique_lock lock(mutex_);
  while (batches_.empty() && !closed_ && !meter_.stop) changed_.wait_for(lock, kLookAtMeter);
  if (batches_.empty() || meter_.stop) return std::nullopt;
  std::optional<RecordBatch> batch(std::move(batches_.front()));
  batches_.erase(batches_.begin());
  changed_.notify_all();
  return batch;
}

// One task under way.
struct Lane {
  explicit Lane(const ConversionMeter& meter) : channel(meter) {}
  RecordChannel channel;
  Problems problems;
  std::string error;  // of reading; set before the channel is closed
};
using Lanes = std::vector<std::shared_ptr<Lane>>;

void read_rows(const ConversionTask& task, ConversionMeter& meter, Lane& lane) {
  Problems reported_already;
  const std::vector<InputFile> files = task.files(reported_already);
  RankRows rows(files, meter, lane.problems);
  RowRecords records(task.kind, lane.channel.names());
  RecordBatch batch{records.layout(), {}};
  const auto push = [&] {
    RecordBatch full = std::exchange(batch, {});
    return full.records.empty() || lane.channel.push(std::move(full));
  };
  while (const Row* const row = rows.next()) {
    if (records.extend_layout(*row) && !push()) return;
    if (batch.records.empty()) batch.layout = records.layout();
    batch.records.push_back(records.record_of(rows, *row));
    if (batch.records.size() == RecordBatch::kRecords && !push()) return;
  }
  push();
}

void read_into(const ConversionTask& task, ConversionMeter& meter, Lane& lane) {
  try {
    read_rows(task, meter, lane);
  } catch (const std::exception& error) {  // of the standard library: out of memory
    lane.error = std::string("cannot convert ") + name_of(task.kind) + " of rank " +
                 std::to_string(task.rank->rank) + ": " + error.what();
  }
  lane.channel.close();
}

bool same(const Layout& a, const Layout& b) {
  return a.ops == b.ops && a.micro_step_in_grad_unreduced == b.micro_step_in_grad_unreduced;
}

// Writes the rows of one task, in the calling thread.
SqliteResult<void> write_rows(const ConversionTask& task, const StoredScopes& scopes, RecordChannel& channel,
                              SqliteDatabase& database) {
  const auto of_kind = std::make_shared<ScopeTable>();
  scopes.add_to(*of_kind, task.kind, *channel.names());
  StepWriter writer(channel.names(), Rank{task.rank->rank}, of_kind);
  if (auto prepared = writer.prepare(database); !prepared) return prepared;
  std::optional<Layout> layout;
  std::vector<Record> of_step;
  const auto never_stop = [](Kind) { return true; };
  while (const auto batch = channel.pop()) {
    if (!layout || !same(*layout, batch->layout)) writer.begin_revision(*(layout = batch->layout));
    for (auto begin = batch->records.begin(); begin != batch->records.end();) {
      const auto end = std::find_if(begin, batch->records.end(),
                                    [&](const Record& record) { return record.step != begin->step; });
      of_step.assign(begin, end);
      const auto written = writer.write(database, Step{begin->step}, of_step, false, never_stop);
      if (!written) return tl::unexpected(written.error());
      begin = end;
    }
  }
  return {};
}

tl::expected<void, std::string> write_all(const ConversionTasks& tasks, NewDatabase& database, Lanes& lanes,
                                          const ConversionMeter& meter, Problems& problems) {
  StoredScopes scopes;  // of the task's rank
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const ConversionTask& task = tasks.tasks[i];
    if (i == 0 || tasks.tasks[i - 1].rank != task.rank) scopes = StoredScopes(task.rank->starts, problems);
    const auto written = write_rows(task, scopes, lanes[i]->channel, database.database());
    if (!written) return tl::unexpected(database.describe(written.error()));
    if (meter.stop) return {};  // its reader may still be working
    if (!lanes[i]->error.empty()) return tl::unexpected(lanes[i]->error);
    problems.add(lanes[i]->problems);
    lanes[i].reset();
  }
  return {};
}

tl::expected<void, std::string> write_all_or_fail(const ConversionTasks& tasks, NewDatabase& database,
                                                  Lanes& lanes, const ConversionMeter& meter,
                                                  Problems& problems) {
  try {
    return write_all(tasks, database, lanes, meter, problems);
  } catch (const std::exception& error) {  // of the standard library: out of memory
    return tl::unexpected(std::string("cannot write the database: ") + error.what());
  }
}

}  // namespace

tl::expected<void, std::string> convert_to_database(const ConversionTasks& tasks, NewDatabase& database,
                                                    int threads, ConversionMeter& meter, Problems& problems) {
  Lanes lanes;
  for (std::size_t i = 0; i < tasks.tasks.size(); ++i) lanes.push_back(std::make_shared<Lane>(meter));
  std::atomic<std::size_t> next{0};
  const OnThreads readers(std::min(static_cast<std::size_t>(threads), lanes.size()), [&] {
    for (std::size_t i = next++; i < tasks.tasks.size() && !meter.stop; i = next++) {
      const std::shared_ptr<Lane> lane = lanes[i];
      read_into(tasks.tasks[i], meter, *lane);
    }
  });
  auto written = write_all_or_fail(tasks, database, lanes, meter, problems);
  if (!written) meter.stop = true;  // stops readers that wait for room, for which ~OnThreads waits
  return written;
}

}  // namespace gradmon
