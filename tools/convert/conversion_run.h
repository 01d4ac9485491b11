// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <tl/expected.hpp>
#include <vector>

#include "control/files/descriptor.h"
#include "tools/analyse/rows/row.h"
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// Runs a function on `count` new threads at a time. The destructor waits for their end.
class OnThreads {
 public:
  template <class Work>
  OnThreads(std::size_t count, const Work& work) {
    for (std::size_t i = 0; i < count; ++i) {
      threads_.emplace_back([work] {
        pthread_setname_np(pthread_self(), "gradmon-convert");
        work();
      });
    }
  }
  ~OnThreads() {
    for (std::thread& thread : threads_) thread.join();
  }
  OnThreads(const OnThreads&) = delete;
  OnThreads& operator=(const OnThreads&) = delete;

 private:
  std::vector<std::thread> threads_;
};

// The progress of a conversion. Any thread.
struct ConversionMeter {
  std::atomic<std::uint64_t> rows{0};      // converted
  std::atomic<std::uint64_t> repeated{0};  // of steps that a later start of the job has collected again
  std::atomic<std::uint64_t> bytes{0};     // read
  std::atomic<bool> stop{false};           // set to end the conversion early
};

// A file or directory that appears under its name only when it is complete. Until then it is in a directory
// beside it, `.NAME.unfinished-XXXXXX`, which the destructor removes. The next begin() there removes the
// directory of a killed process. One thread.
class UnfinishedOutput {
 public:
  // The output that may exist at the target, besides an empty directory.
  enum class Earlier {
    nothing,
    file,   // replaced at once
    curves  // a directory; rank{R}/{prefix} in it are added or replaced one by one
  };

  // Makes missing parents of `target` (0750). The error: something else exists there.
  static tl::expected<UnfinishedOutput, std::string> begin(const std::filesystem::path& target,
                                                           Earlier earlier = Earlier::nothing);

  ~UnfinishedOutput() { remove(); }
  UnfinishedOutput(UnfinishedOutput&&) noexcept = default;
  UnfinishedOutput& operator=(UnfinishedOutput&&) = delete;

  const std::filesystem::path& target() const { return target_; }
  // The place to make the file or directory; it does not exist yet.
  std::filesystem::path path() const { return place_ / "result"; }

  // Renames it to the target, unless something new has that name since begin(). Call it once. After an error,
  // nothing has changed. Returns the number of replaced files or directories of an earlier output.
  [[nodiscard]] tl::expected<std::size_t, std::string> finish();

 private:
  // `earlier`: the existing output.
  UnfinishedOutput(std::filesystem::path target, Earlier earlier, std::filesystem::path place,
                   Descriptor lock)
      : target_(std::move(target)), earlier_(earlier), place_(std::move(place)), lock_(std::move(lock)) {}
  void remove();

  std::filesystem::path target_;
  Earlier earlier_;
  std::filesystem::path place_;  // the directory beside it
  Descriptor lock_;              // locked while this process lives; not valid after a move
};

// " 45 %, 1230000 rows, 310000 rows/s, 12 s left". `seconds`: since the beginning. Pure.
std::string progress_text(std::uint64_t rows, std::uint64_t bytes_read, std::uint64_t bytes_of_all,
                          double seconds);

// A line in a terminal that shows the progress of a conversion, four times a second. One thread.
class ConversionProgress {
 public:
  // `terminal`: null shows no line.
  ConversionProgress(std::uint64_t bytes_of_all, std::ostream* terminal)
      : bytes_of_all_(bytes_of_all), terminal_(terminal) {}

  void show(const ConversionMeter& meter);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  const std::uint64_t bytes_of_all_;
  std::ostream* const terminal_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point shown_ = began_;
};

// The input and the output of a conversion.
struct Conversion {
  std::string input;             // for messages
  std::vector<int> ranks;        // ascending
  std::uint64_t bytes = 0;       // of the input
  std::filesystem::path target;  // the file or directory to make
  // The output of an earlier conversion that may exist.
  UnfinishedOutput::Earlier earlier = UnfinishedOutput::Earlier::nothing;
  // Makes the file or directory at `path`. Called on its own thread.
  std::function<tl::expected<void, std::string>(const std::filesystem::path& path, ConversionMeter& meter,
                                                Problems& problems)>
      write;
};

// Converts, shows the progress if stderr is a terminal, and reports `problems`, those found so far and those
// of the conversion. Afterwards the target is complete or missing; a signal that ends the process does so
// here. Returns the exit code.
int run_conversion(const Conversion& conversion, Problems& problems, const Console& console);

}  // namespace gradmon
