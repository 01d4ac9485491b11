// SPDX-License-Identifier: Apache-2.0
#include "control/hub/disk_thread.h"

#include <atomic>
#include <future>
#include <stdexcept>

#include "control/host/mailbox.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

TEST_CASE("jobs run one after another in the order of post") {
  DiskThread disk;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    disk.post([&, i] { order.push_back(i); });
  }
  REQUIRE(disk.drain(std::chrono::seconds(10)));
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) REQUIRE(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("an exception of any type in a job or in the watch does not end the thread") {
  auto done = std::make_shared<std::atomic<bool>>(false);
  DiskThread disk;
  disk.watch([] {
    return DiskThread::Watch{[]() -> int { throw 7; }, []() -> std::chrono::milliseconds { throw 7; },
                             [] { throw 7; }};
  });
  disk.post([] { throw std::runtime_error("no disk"); });
  disk.post([done] { *done = true; });
  CHECK(eventually([&] { return done->load(); }));
}

TEST_CASE("the destructor does not wait for a job that hangs") {
  auto release = std::make_shared<std::promise<void>>();
  auto done = std::make_shared<std::promise<void>>();
  {
    DiskThread disk;
    std::promise<void> begun;
    disk.post([&begun, release, done] {
      begun.set_value();
      release->get_future().wait();
      done->set_value();
    });
    begun.get_future().wait();
  }
  release->set_value();
  REQUIRE(done->get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE("a job or a watch that hangs has an age until it returns") {
  std::promise<void> release;
  DiskThread disk;
  CHECK(disk.current_task_age() == std::chrono::milliseconds(0));
  disk.post([&] { release.get_future().wait(); });
  CHECK(eventually([&] { return disk.current_task_age() >= std::chrono::milliseconds(20); }));
  release.set_value();
  CHECK(eventually([&] { return disk.current_task_age() == std::chrono::milliseconds(0); }));
  // A call of the watch has an age, too.
  std::promise<void> look;
  disk.watch([&] {
    return DiskThread::Watch{[] { return -1; }, [] { return std::chrono::milliseconds(60'000); },
                             [&] { look.get_future().wait(); }};
  });
  CHECK(eventually([&] { return disk.current_task_age() >= std::chrono::milliseconds(20); }));
  look.set_value();
  CHECK(eventually([&] { return disk.current_task_age() == std::chrono::milliseconds(0); }));
}

TEST_CASE("the watch is called when its descriptor is readable") {
  auto wake = std::make_shared<WakeUp>();
  auto looks = std::make_shared<std::atomic<int>>(0);
  DiskThread disk;
  disk.watch([wake, looks] {
    return DiskThread::Watch{[wake] { return wake->fd(); }, [] { return std::chrono::milliseconds(60'000); },
                             [wake, looks] {
                               wake->clear();
                               ++*looks;
                             }};
  });
  REQUIRE(eventually([&] { return *looks == 1; }));
  wake->wake();
  REQUIRE(eventually([&] { return *looks == 2; }));
}

}  // namespace
}  // namespace gradmon
