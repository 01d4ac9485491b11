// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/abandoned_output.h"

#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>

#include "control/debian_version.h"
#include "writers/queue/writer_thread.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
using namespace std::chrono_literals;

TEST_CASE("abandoned rows and files are listed by kind") {
  AbandonedOutput abandoned_output;
  CHECK(to_string(abandoned_output) == "0 rows");
  abandoned_output.files = 1;
  abandoned_output.queued = 1;
  CHECK(to_string(abandoned_output) == "1 row (1 of unknown kind) and 1 other file");
  abandoned_output.rows[static_cast<std::size_t>(Kind::grad_reduced)] = 10;
  abandoned_output.files = 2;
  CHECK(abandoned_output.all_rows() == 11);
  CHECK(to_string(abandoned_output) == "11 rows (10 of grad_reduced, 1 of unknown kind) and 2 other files");
}

TEST_CASE("stop waits for a slow file as long as its write reports progress") {
  for (const bool reports : {true, false}) {
    const auto written = std::make_shared<std::atomic<bool>>(false);  // the abandoned thread outlives this
    std::promise<void> release, begun;
    {
      WriterThread writer(std::make_shared<RecordQueue>(QueueOptions{16, Overflow::block, 60s}), nullptr);
      writer.write_file([&begun, written, reports, released = release.get_future().share(),
                         progress = writer.progress()]() -> tl::expected<void, std::string> {
        begun.set_value();
        while (released.wait_for(10ms) != std::future_status::ready) {
          if (reports) progress();
        }
        *written = true;
        return {};
      });
      begun.get_future().wait();
      bool released = false;  // by stop(), after 2 s
      CHECK(writer.stop({1200ms, 60s, [&] {
                           released = true;
                           release.set_value();
                         }}) == reports);
      if (!released) release.set_value();
    }
    if (reports) CHECK(*written);
  }
}

TEST_CASE("a writer is not given up because the whole process was stopped") {
  std::promise<void> release, begun;
  WriterThread writer(std::make_shared<RecordQueue>(QueueOptions{16, Overflow::block, 60s}), nullptr);
  writer.write_file([&begun, released = release.get_future().share()]() -> tl::expected<void, std::string> {
    begun.set_value();
    released.wait();
    return {};
  });
  begun.get_future().wait();
  int code = -1;
  std::thread pause([&] {
    code = std::system("kill -STOP $PPID && sleep 1.5; kill -CONT $PPID");
    release.set_value();
  });
  const bool ended = writer.stop({1000ms, 60s, nullptr});
  pause.join();
  REQUIRE(code == 0);
  CHECK(ended);
}
