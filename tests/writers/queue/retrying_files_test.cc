// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/retrying_files.h"

#include <stdexcept>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

const RetryingFiles::Time kStart{};

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
