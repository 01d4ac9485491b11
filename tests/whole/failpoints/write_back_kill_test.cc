// SPDX-License-Identifier: Apache-2.0
// A process writes dynamic_on back as the lead hub does. It is stopped before a chosen
// call, the user saves, the process goes on and is killed before a later call. Afterwards
// the file is whole, and has the user's save once the next job has started.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "control/config/file_content.h"
#include "control/config/replace_content.h"
#include "control/hub/config_service.h"
#include "tests/support/catch.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/failpoints/failpoints.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using State = FailpointProcess::State;

std::string text_of(int n, const char* on) {
  return "{\n  \"n\": " + std::to_string(n) + ",\n  \"dynamic_on\": " + on + "\n}\n";
}

enum class Saving { none, rename, in_place, same_content, held_open };
const char* name_of(Saving saving) {
  constexpr const char* names[] = {"none", "rename", "in place", "the same again", "held open"};
  return names[static_cast<int>(saving)];
}

// One config file, one write-back, and a save by the user in the middle of it.
class WriteBackRun {
 public:
  // With two links the file is written in place.
  explicit WriteBackRun(const fs::path& parent, std::uintmax_t links = 1)
      : directory_(parent / "job"), links_(links) {
    fs::remove_all(directory_);
    fs::create_directories(directory_ / "conf");
    std::ofstream(config_) << text_of(1, "true");
    set_time(config_, 1'700'000'000'123'456'789);
    if (links_ == 2) fs::create_hard_link(config_, directory_ / "conf" / "other");
  }

  // Returns "" or the error. The process is stopped before call `save_at` for the save (not
  // with Saving::none), and killed before call `kill_at` (0: not killed).
  std::string run_once(Saving saving, int save_at, int kill_at) {
    std::string points = saving == Saving::none ? "" : std::to_string(save_at) + " stop";
    if (kill_at > 0) points += (points.empty() ? "" : ";") + std::to_string(kill_at) + " kill";
    {
      FailpointProcess process(run("write", points));
      State state = process.wait();
      if (state == State::stopped) {
        begin_save(saving);
        process.resume();
        state = process.wait();
      }
      killed = state == State::killed;
      if (!killed && process.exit_code() != 0 && process.exit_code() != 3)
        return "the process ended with " + std::to_string(process.exit_code());
    }
    const bool due = note_.read().has_value() && note_.read() == identity();
    end_save();
    if (saved_) return check_save();
    const std::string left = read_text(config_);
    if (left != text_of(1, "true") && left != text_of(1, "false")) return "not whole: " + left;
    const std::string after = next_job();
    if (due && after != text_of(1, "false")) return "the next job has not completed the write-back";
    if (!killed && after != text_of(1, "false")) return "not written back";
    if (fs::hard_link_count(config_) != links_) return "a link is broken";
    return after == left || due ? "" : "changed without a reason: " + after;
  }

  // `on`, killed before call `kill_at`. Returns the file's content then, and after the next job has read it.
  std::pair<std::string, std::string> turn_on(int kill_at) {
    std::ofstream(config_) << text_of(1, "false");
    {
      FailpointProcess process(run("on", kill_at == 0 ? "" : std::to_string(kill_at) + " kill"));
      killed = process.wait() == State::killed;
    }
    const std::string left = read_text(config_);
    FailpointProcess process(run("look", ""));
    process.wait();
    return {left, read_text(config_)};
  }

  bool killed = false;
  std::size_t calls() const { return read_lines(directory_ / "calls").size(); }

 private:
  static void set_time(const fs::path& file, std::int64_t ns) {
    const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
    const timespec times[2] = {time, time};
    ::utimensat(AT_FDCWD, file.c_str(), times, 0);
  }

  FailpointRun run(const char* what, const std::string& points) const {
    return {{test_program("failpoint-write-back"), config_.string(), output_.string(), what},
            {},
            directory_ / "conf",
            points,
            directory_ / "calls",
            directory_ / "printed"};
  }

  std::optional<FileIdentity> identity() const {
    const auto read = read_file(config_);
    if (!read) return std::nullopt;
    return read->content.identity;
  }

  void begin_save(Saving saving) {
    if (saving == Saving::rename) {
      std::ofstream(directory_ / "conf" / "editing") << text_of(2, "true");
      fs::rename(directory_ / "conf" / "editing", config_);
    } else if (saving == Saving::held_open) {
      held_ = ::open(config_.c_str(), O_WRONLY | O_CLOEXEC);
      return;
    } else {
      std::ofstream(config_) << text_of(saving == Saving::in_place ? 2 : 1, "true");
    }
    saved_ = identity();
  }
  void end_save() {
    if (held_ < 0) return;
    const std::string text = text_of(2, "true");
    const bool written = ::pwrite(held_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                         ::ftruncate(held_, static_cast<off_t>(text.size())) == 0;
    struct stat status {};
    ::fstat(held_, &status);
    ::close(held_);
    if (written)
      saved_ = FileIdentity{status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, text.size(),
                            sha256_hex(text)};
  }

  // The content of the file after the next job has finished the write-back and recovered the side files.
  std::string next_job() {
    if (note_.read()) {
      FailpointProcess process(run("look", ""));
      process.wait();
    }
    Recovery recovery;
    recovery.age = recovery.save_age = std::chrono::seconds(-1);
    recover_side_files(config_, recovery);
    return read_text(config_);
  }

  // Returns "" if the file has the user's save, or the save with dynamic_on false if the process had read it.
  std::string check_save() {
    const bool was_seen =
        read_text(directory_ / "printed").find("base " + std::to_string(saved_->mtime_ns) + "\n") !=
        std::string::npos;
    const std::string after = next_job();
    const int n = saved_->sha256 == sha256_hex(text_of(2, "true")) ? 2 : 1;
    if (after == text_of(n, "true")) return "";
    if (was_seen && after == text_of(n, "false")) return "";
    return "the user's save is lost: " + after;
  }

  const fs::path directory_;
  const std::uintmax_t links_;
  const fs::path config_ = directory_ / "conf" / "c.json";
  const fs::path output_ = directory_ / "conf" / "out";
  const WriteBackNote note_{output_, config_};
  int held_ = -1;
  std::optional<FileIdentity> saved_;
};

int count_calls(const fs::path& parent, std::uintmax_t links = 1) {
  WriteBackRun write_back(parent, links);
  REQUIRE(write_back.run_once(Saving::none, 0, 0).empty());
  return static_cast<int>(write_back.calls());
}

// A directory on disk, and one in memory.
std::vector<fs::path> parent_directories() {
  std::vector<fs::path> all{fs::temp_directory_path()};
  if (::access("/dev/shm", W_OK) == 0) {
    all.emplace_back("/dev/shm");
  } else {
    WARN("skipped: there is no /dev/shm; the test runs only on disk");
  }
  return all;
}

}  // namespace

TEST_CASE("a write-back killed before any of its calls leaves a whole file and the next job completes it",
          "[configfile]") {
  for (const fs::path& parent : parent_directories()) {
    const TemporaryDirectory directory(parent);
    const int calls = count_calls(directory.path());
    REQUIRE(calls > 30);
    int killed = 0;
    for (int n = 1; n <= calls; ++n) {
      WriteBackRun write_back(directory.path());
      CAPTURE(parent, n);
      CHECK(write_back.run_once(Saving::none, 0, n) == "");
      killed += write_back.killed ? 1 : 0;
    }
    CHECK(killed > calls / 2);
  }
}

TEST_CASE("a write-back in place killed before any of its calls is whole or completed by the next job",
          "[configfile]") {
  const TemporaryDirectory directory;
  const int calls = count_calls(directory.path(), 2);
  REQUIRE(calls > 20);
  int killed = 0;
  for (int n = 1; n <= calls; ++n) {
    WriteBackRun write_back(directory.path(), 2);
    CAPTURE(n);
    CHECK(write_back.run_once(Saving::none, 0, n) == "");
    killed += write_back.killed ? 1 : 0;
  }
  CHECK(killed > calls / 2);
}

// Saves that open the file wait while the stopped process has its lease: config_edit_test.cc has these.
TEST_CASE("a save by rename at any moment of a write-back in place is not lost", "[configfile]") {
  const TemporaryDirectory directory;
  const int calls = count_calls(directory.path(), 2);
  for (int n = 1; n <= calls; n += full_scale() ? 1 : 3) {
    WriteBackRun write_back(directory.path(), 2);
    CAPTURE(n);
    CHECK(write_back.run_once(Saving::rename, n, 0) == "");
  }
}

// The last byte of the old text is cut after the shorter new one has been written.
TEST_CASE("a shorter text that a killed process has not cut is completed by the next job", "[configfile]") {
  const TemporaryDirectory directory;
  const std::string on = text_of(1, "true");
  const std::string off = text_of(1, "false");
  int calls = 0;
  {
    WriteBackRun whole(directory.path(), 2);
    REQUIRE(whole.turn_on(0).first == on);
    calls = static_cast<int>(whole.calls());
  }
  int torn = 0;
  for (int n = 1; n <= calls; ++n) {
    WriteBackRun run(directory.path(), 2);
    const auto [left, after] = run.turn_on(n);
    CAPTURE(n, left);
    CHECK(after == (left == off ? off : on));
    torn += left != off && left != on ? 1 : 0;
  }
  CHECK(torn > 0);
}

TEST_CASE("a save at any moment of a write-back is not lost", "[configfile]") {
  const int stride = full_scale() ? 1 : 4;
  for (const fs::path& parent : parent_directories()) {
    const TemporaryDirectory directory(parent);
    const int calls = count_calls(directory.path());
    for (const Saving saving : {Saving::rename, Saving::in_place, Saving::same_content, Saving::held_open}) {
      for (int n = 1; n <= calls; n += stride) {
        WriteBackRun write_back(directory.path());
        CAPTURE(parent, n, name_of(saving));
        CHECK(write_back.run_once(saving, n, 0) == "");
      }
    }
  }
}

TEST_CASE("a save during a write-back that is then killed is in the file or recovered by the next job",
          "[configfile]") {
  const int wanted = full_scale() ? 500 : 50;  // in each directory
  for (const fs::path& parent : parent_directories()) {
    const TemporaryDirectory directory(parent);
    const int calls = count_calls(directory.path());
    std::mt19937 random(11);
    int killed = 0;
    for (int i = 0; killed < wanted && i < 4 * wanted; ++i) {
      const auto saving = static_cast<Saving>(1 + random() % 4);
      const int save_at = 1 + static_cast<int>(random() % static_cast<unsigned>(calls));
      const int kill_at = save_at + 1 + static_cast<int>(random() % 30U);
      WriteBackRun write_back(directory.path());
      CAPTURE(parent, i, name_of(saving), save_at, kill_at);
      CHECK(write_back.run_once(saving, save_at, kill_at) == "");
      killed += write_back.killed ? 1 : 0;
    }
    CHECK(killed == wanted);
  }
}

}  // namespace gradmon
