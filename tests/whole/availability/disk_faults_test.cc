// SPDX-License-Identifier: Apache-2.0
// Faults of the disks of the output, the config and the decision log, and forged job entries.
#include <sys/stat.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "tests/whole/availability/check_fault.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::size_t kSmall = std::size_t{2} << 20U;

Fault small_disk(const std::string& name) {
  Fault fault;
  fault.name = name;
  fault.prepare = [](FaultFixture& fixture) {
    fixture.small_disk = std::make_unique<SmallDisk>(fixture.places.output, kSmall);
  };
  return fault;
}

TEST_CASE("training goes on when the output disk is full") {
  Fault fault = small_disk("output disk full");
  fault.begin = [](FaultFixture& fixture) { fixture.small_disk->fill(); };
  fault.end = [](FaultFixture& fixture) { fixture.small_disk->make_room(); };
  fault.status = rank_pattern("[012]", "no space");
  check_fault(fault);
}

Fault hanging_output_disk(const std::string& name, void (HangingDisk::*begin)()) {
  Fault fault;
  fault.name = name;
  fault.prepare = [](FaultFixture& fixture) {
    fixture.hanging_disk = std::make_unique<HangingDisk>(fixture.places.output);
  };
  fault.begin = [begin](FaultFixture& fixture) { (*fixture.hanging_disk.*begin)(); };
  fault.end = [](FaultFixture& fixture) { fixture.hanging_disk->recover(); };
  return fault;
}

TEST_CASE("training goes on when the output disk becomes read-only") {
  Fault fault = hanging_output_disk("output disk read-only", &HangingDisk::make_read_only);
  fault.status = rank_pattern("[012]", "read-only");
  check_fault(fault);
}

TEST_CASE("training goes on when the output disk hangs") {
  Fault fault = hanging_output_disk("output disk hung", &HangingDisk::hang);
  fault.status = rank_pattern("[012]", "hang|hung|stuck|not written|writer|no progress");
  check_fault(fault);
}

TEST_CASE("training goes on when somebody removes the output directory") {
  Fault fault;
  fault.name = "rm -rf of the output directory";
  fault.begin = [](FaultFixture& fixture) {
    // Rename first: the ranks create missing files faster than remove_all() removes them.
    fs::rename(fixture.places.output, fixture.directory / "aside");
    fs::remove_all(fixture.directory / "aside");
  };
  fault.further_checks = [](FaultFixture& fixture) {
    std::vector<std::string> violations;
    if (!fs::exists(fixture.places.output))
      violations.emplace_back("the output directory was not created again");
    return violations;
  };
  check_fault(fault);
}

TEST_CASE("training goes on when the config's disk hangs") {
  Fault fault;
  fault.name = "config's disk hung";
  fault.prepare = [](FaultFixture& fixture) {
    fixture.hanging_disk = std::make_unique<HangingDisk>(fixture.places.config_directory);
  };
  fault.begin = [](FaultFixture& fixture) { fixture.hanging_disk->hang(); };
  fault.end = [](FaultFixture& fixture) { fixture.hanging_disk->recover(); };
  fault.status = "config.*(hang|hung|not answer|not read|not written|no answer|unanswered)";
  check_fault(fault);
}

TEST_CASE("training goes on when the config is missing for 3 s") {
  Fault fault;
  fault.name = "config away";
  fault.begin = [](FaultFixture& fixture) {
    fs::rename(fixture.places.config, fixture.places.logs / "away");
  };
  fault.end = [](FaultFixture& fixture) { fs::rename(fixture.places.logs / "away", fixture.places.config); };
  fault.status = "monitor_config.json.*(no such|missing|not there|away|gone|not found|cannot)";
  fault.duration = milliseconds(3'000);
  check_fault(fault);
}

// The disk of the job directory, which holds hub.sock, decisions and hub.log.
TEST_CASE("training goes on when the decision log's disk is full") {
  Fault fault;
  fault.name = "decision log's disk full";
  fault.prepare = [](FaultFixture& fixture) {
    fixture.small_disk = std::make_unique<SmallDisk>(fixture.places.runtime, kSmall);
  };
  fault.begin = [](FaultFixture& fixture) { fixture.small_disk->fill(); };
  fault.end = [](FaultFixture& fixture) { fixture.small_disk->make_room(); };
  check_fault(fault);
}

// Replaces the job's entry in the output directory, and adds a second entry beside it.
Fault replaced_entry(const std::string& name, std::function<void(const fs::path&)> plant) {
  Fault fault;
  fault.name = name;
  fault.begin = [plant = std::move(plant)](FaultFixture& fixture) {
    const fs::path jobs = fixture.places.output / ".gradmon" / "jobs";
    fs::create_directories(jobs);
    plant(jobs / "planted.json");
    const fs::path beside =
        jobs / "first.planted";  // The hub writes its own entry again whenever it is gone.
    plant(beside);
    fs::rename(beside, jobs / "first.json");
  };
  return fault;
}

TEST_CASE("training goes on when somebody replaces the job's entry by a forged one") {
  check_fault(replaced_entry("planted entry", [](const fs::path& path) {
    write_text(path, R"({"epoch":"00","launch_id":"first","host":"elsewhere","endpoint":"ipc:///dev/null",)"
                     R"("address":"tcp://127.0.0.1:1","started":4102444800000})");
    if (chown(path.c_str(), 65534, 65534) != 0) throw std::runtime_error("chown");
  }));
}

TEST_CASE("training goes on when somebody replaces the job's entry by a FIFO") {
  check_fault(replaced_entry("planted FIFO", [](const fs::path& path) {
    if (mkfifo(path.c_str(), 0666) != 0) throw std::runtime_error("mkfifo");
  }));
}

TEST_CASE("training goes on when somebody replaces the job's entry by a link to /dev/zero") {
  check_fault(replaced_entry("planted link to /dev/zero",
                             [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }));
}

}  // namespace
}  // namespace gradmon
