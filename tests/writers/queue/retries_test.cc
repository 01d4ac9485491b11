// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/writer_thread.h"

#include <stdexcept>

#include "tests/support/catch.h"

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

struct Script {
  int begins = 0;
  int writes = 0;
  bool begin_fails = false;
  bool throws = false;
  std::uint64_t loses = 0;
  bool keeps_histograms = false;
  std::uint64_t histograms = 0;        // written so far
  std::uint64_t loses_histograms = 0;  // of each call
};

class ScriptedSink : public Sink {
 public:
  explicit ScriptedSink(Script& script) : script_(script) {}
  const char* name() const override { return "scripted"; }
  tl::expected<void, SinkError> begin_revision(const Layout&) override {
    ++script_.begins;
    if (script_.begin_fails) return tl::unexpected(SinkError{"no begin", 0});
    return {};
  }
  tl::expected<void, SinkError> write_step(Step, const RecordBatch&) override {
    ++script_.writes;
    if (script_.throws) throw std::runtime_error("thrown");
    if (script_.loses > 0) return tl::unexpected(SinkError{"no room", script_.loses});
    return {};
  }
  bool keeps_histograms() const override { return script_.keeps_histograms; }
  tl::expected<void, SinkError> write_histograms(Step, const std::vector<Histogram>& histograms) override {
    script_.histograms += histograms.size();
    if (script_.loses_histograms > 0) return tl::unexpected(SinkError{"no bins", script_.loses_histograms});
    return {};
  }
  tl::expected<void, SinkError> flush() override { return {}; }

 private:
  Script& script_;
};

const RetryingSink::Time kStart{};
const std::vector<Record> kThree(3);

RetryingSink retrying(Script& script) {
  return RetryingSink(std::make_unique<ScriptedSink>(script), Layout{}, Pauses{100ms, 400ms});
}

struct FakeDisk {
  bool full = true;
  bool throws = false;
  int tries = 0;

  FileToWrite file() {
    return {[this]() -> tl::expected<void, std::string> {
      ++tries;
      if (throws) throw std::runtime_error("no memory");
      if (full) return tl::unexpected(std::string("run.json: no room"));
      return {};
    }};
  }
};

}  // namespace

TEST_CASE("the pause of a sink that loses all rows doubles each time up to the longest pause") {
  Script script;
  RetryingSink sink = retrying(script);
  script.loses = 3;
  auto now = kStart;
  for (const auto pause : {100ms, 200ms, 400ms, 400ms}) {
    const int before = script.writes;
    CHECK(sink.write(Step{1}, kThree, now).lost == 3);
    CHECK(script.writes == before + 1);
    CHECK(sink.write(Step{2}, kThree, now + pause - 1ms).lost == 3);
    CHECK(script.writes == before + 1);
    now += pause;
  }
  CHECK(sink.error() == "scripted: no room");
}

TEST_CASE("a sink that works again is used at once and its next pause is short") {
  Script script;
  RetryingSink sink = retrying(script);
  script.loses = 3;
  sink.write(Step{1}, kThree, kStart);
  script.loses = 0;
  CHECK(sink.write(Step{2}, kThree, kStart + 100ms).written == 3);
  CHECK(sink.write(Step{3}, kThree, kStart + 100ms).written == 3);
  script.loses = 3;
  sink.write(Step{4}, kThree, kStart + 200ms);
  script.loses = 0;
  CHECK(sink.write(Step{5}, kThree, kStart + 300ms).written == 3);
}

TEST_CASE("a sink that writes some of the rows gets no pause") {
  Script script;
  RetryingSink sink = retrying(script);
  script.loses = 1;
  for (int i = 0; i < 2; ++i) {
    const auto outcome = sink.write(Step{i}, kThree, kStart);
    CHECK(outcome.written == 2);
    CHECK(outcome.lost == 1);
  }
  CHECK(script.writes == 2);
}

TEST_CASE("a revision that could not begin is begun again before a later write") {
  Script script;
  RetryingSink sink = retrying(script);
  script.begin_fails = true;
  CHECK(sink.write(Step{1}, kThree, kStart).lost == 3);
  CHECK(script.writes == 0);
  script.begin_fails = false;
  CHECK(sink.write(Step{2}, kThree, kStart + 1s).written == 3);
  CHECK(sink.write(Step{3}, kThree, kStart + 1s).written == 3);
  CHECK(script.begins == 2);
}

TEST_CASE("an exception from a sink is an error like any other") {
  Script script;
  RetryingSink sink = retrying(script);
  script.throws = true;
  CHECK(sink.write(Step{1}, kThree, kStart).lost == 3);
  CHECK(sink.error() == "scripted: thrown");
}

TEST_CASE("histograms are rows of a sink that keeps them and nothing to another sink") {
  const std::vector<Histogram> two(2);
  Script script;
  RetryingSink sink = retrying(script);
  CHECK(sink.write(Step{1}, kThree, two, kStart).written == 3);
  CHECK(sink.write(Step{2}, {}, two, kStart).written == 0);
  CHECK(script.writes == 1);
  CHECK(script.histograms == 0);
  script.keeps_histograms = true;
  CHECK(sink.write(Step{3}, kThree, two, kStart).written == 5);
  CHECK(sink.write(Step{4}, {}, two, kStart).written == 2);
  CHECK(script.writes == 2);
  CHECK(script.histograms == 4);
}

TEST_CASE("histograms are lost with the records of their step and counted by themselves") {
  const std::vector<Histogram> two(2);
  Script script;
  script.keeps_histograms = true;
  RetryingSink sink = retrying(script);
  script.loses = 1;
  auto outcome = sink.write(Step{1}, kThree, two, kStart);
  CHECK(outcome.written == 2);
  CHECK(outcome.lost == 3);
  CHECK(script.histograms == 0);
  script.loses = 0;
  script.loses_histograms = 1;
  outcome = sink.write(Step{2}, kThree, two, kStart);
  CHECK(outcome.written == 4);
  CHECK(outcome.lost == 1);
  CHECK(sink.error() == "scripted: no bins");
}

TEST_CASE("a file that fails is reported and retried after each pause until it is written") {
  FakeDisk disk;
  RetryingFiles files(Pauses{100ms, 400ms});
  files.write(disk.file(), kStart);
  CHECK(files.error() == "run.json: no room");
  files.retry(kStart + 99ms);
  CHECK(disk.tries == 1);
  files.retry(kStart + 100ms);
  CHECK(disk.tries == 2);
  files.retry(kStart + 299ms);
  CHECK(disk.tries == 2);
  disk.full = false;
  files.retry(kStart + 300ms);
  CHECK(disk.tries == 3);
  CHECK(files.error().empty());
  files.retry(kStart + 10s);
  CHECK(disk.tries == 3);
}

TEST_CASE("a file that is written does not clear the error of another") {
  FakeDisk full, roomy;
  roomy.full = false;
  RetryingFiles files(Pauses{100ms, 400ms});
  files.write(full.file(), kStart);
  files.write(roomy.file(), kStart);
  CHECK(files.error() == "run.json: no room");
}

TEST_CASE("an exception while a file is written is the file's error and goes no further") {
  FakeDisk disk;
  disk.throws = true;
  RetryingFiles files(Pauses{100ms, 400ms});
  files.write(disk.file(), kStart);
  CHECK(files.error() == "a file is not written: no memory");
}

TEST_CASE("if too many files fail the oldest are abandoned") {
  FakeDisk oldest, others;
  RetryingFiles files(Pauses{100ms, 400ms});
  files.write(oldest.file(), kStart);
  for (std::size_t i = 0; i < RetryingFiles::kMostKept; ++i) files.write(others.file(), kStart);
  files.retry(kStart + 100ms);
  CHECK(oldest.tries == 1);
  CHECK(others.tries == 2 * static_cast<int>(RetryingFiles::kMostKept));
}
