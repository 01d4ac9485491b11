// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/retrying_files.h"

#include <stdexcept>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

const RetryingFiles::Time kStart{};

struct Disk {
  bool full = true;
  bool throws = false;
  int tried = 0;

  FileToWrite file() {
    return {[this]() -> tl::expected<void, std::string> {
      ++tried;
      if (throws) throw std::runtime_error("no memory");
      if (full) return tl::unexpected(std::string("run.json: no room"));
      return {};
    }};
  }
};

}  // namespace

TEST_CASE("a file that fails is said and tried again after its pauses until it is written") {
  Disk disk;
  RetryingFiles files(Pauses{100ms, 400ms});
  files.write(disk.file(), kStart);
  CHECK(files.error() == "run.json: no room");
  files.retry(kStart + 99ms);
  CHECK(disk.tried == 1);
  files.retry(kStart + 100ms);
  CHECK(disk.tried == 2);
  files.retry(kStart + 299ms);
  CHECK(disk.tried == 2);
  disk.full = false;
  files.retry(kStart + 300ms);
  CHECK(disk.tried == 3);
  CHECK(files.error().empty());
  files.retry(kStart + 10s);
  CHECK(disk.tried == 3);
}

TEST_CASE("one file that is written says nothing of another that is not") {
  Disk full, roomy;
  roomy.full = false;
  RetryingFiles files(Pauses{100ms, 400ms});
  files.write(full.file(), kStart);
  files.write(roomy.file(), kStart);
  CHECK(files.error() == "run.json: no room");
}

TEST_CASE("what the writing of a file throws is its error and goes no further") {
  Disk disk;
  disk.throws = true;
  RetryingFiles files(Pauses{100ms, 400ms});
  files.write(disk.file(), kStart);
  CHECK(files.error() == "a file is not written: no memory");
}

TEST_CASE("of files that fail for ever the oldest are given up") {
  Disk oldest, others;
  RetryingFiles files(Pauses{100ms, 400ms});
  files.write(oldest.file(), kStart);
  for (std::size_t i = 0; i < RetryingFiles::kMostKept; ++i) files.write(others.file(), kStart);
  files.retry(kStart + 100ms);
  CHECK(oldest.tried == 1);
  CHECK(others.tried == 2 * static_cast<int>(RetryingFiles::kMostKept));
}
