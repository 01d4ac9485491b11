// SPDX-License-Identifier: Apache-2.0
// Faults of the disks that training writes to, and of those that the config lies on.
#include <sys/stat.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "tests/whole/availability/availability.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::size_t kSmall = std::size_t{2} << 20U;

Fault small_disk(const std::string& name) {
  Fault fault;
  fault.name = name;
  fault.prepare = [](Scene& scene) {
    scene.small_disk = std::make_unique<SmallDisk>(scene.places.output, kSmall);
  };
  return fault;
}

TEST_CASE("the output disk is full") {
  Fault fault = small_disk("output disk full");
  fault.begin = [](Scene& scene) { scene.small_disk->fill(); };
  fault.end = [](Scene& scene) { scene.small_disk->make_room(); };
  fault.status = of_rank("[012]", "no space");
  check(fault);
}

Fault own_disk(const std::string& name, void (HangingDisk::*begin)()) {
  Fault fault;
  fault.name = name;
  fault.prepare = [](Scene& scene) {
    scene.hanging_disk = std::make_unique<HangingDisk>(scene.places.output);
  };
  fault.begin = [begin](Scene& scene) { (*scene.hanging_disk.*begin)(); };
  fault.end = [](Scene& scene) { scene.hanging_disk->go_on(); };
  return fault;
}

TEST_CASE("the output disk becomes read-only") {
  Fault fault = own_disk("output disk read-only", &HangingDisk::make_read_only);
  fault.status = of_rank("[012]", "read-only");
  check(fault);
}

TEST_CASE("the output disk hangs") {
  Fault fault = own_disk("output disk hung", &HangingDisk::hang);
  fault.status = of_rank("[012]", "hang|hung|stuck|not written|writer|no progress");
  check(fault);
}

TEST_CASE("somebody removes the output directory") {
  Fault fault;
  fault.name = "rm -rf of the output directory";
  fault.begin = [](Scene& scene) {
    // Aside first: ranks make what they miss anew, faster than it can be removed.
    fs::rename(scene.places.output, scene.directory / "aside");
    fs::remove_all(scene.directory / "aside");
  };
  fault.besides = [](Scene& scene) {
    std::vector<std::string> broken;
    if (!fs::exists(scene.places.output)) broken.emplace_back("the output directory is not there again");
    return broken;
  };
  check(fault);
}

TEST_CASE("the config's disk hangs") {
  Fault fault;
  fault.name = "config's disk hung";
  fault.prepare = [](Scene& scene) {
    scene.hanging_disk = std::make_unique<HangingDisk>(scene.places.config_directory);
  };
  fault.begin = [](Scene& scene) { scene.hanging_disk->hang(); };
  fault.end = [](Scene& scene) { scene.hanging_disk->go_on(); };
  fault.status = "config.*(hang|hung|not answer|not read|not written|no answer|unanswered)";
  check(fault);
}

TEST_CASE("the config goes away for three seconds and comes back") {
  Fault fault;
  fault.name = "config away";
  fault.begin = [](Scene& scene) { fs::rename(scene.places.config, scene.places.logs / "away"); };
  fault.end = [](Scene& scene) { fs::rename(scene.places.logs / "away", scene.places.config); };
  fault.status = "monitor_config.json.*(no such|missing|not there|away|gone|not found|cannot)";
  fault.lasts = milliseconds(3'000);
  check(fault);
}

// The disk of the job's own directory: hub.sock, decisions, hub.log.
TEST_CASE("the decision log's disk is full") {
  Fault fault;
  fault.name = "decision log's disk full";
  fault.prepare = [](Scene& scene) {
    scene.small_disk = std::make_unique<SmallDisk>(scene.places.runtime, kSmall);
  };
  fault.begin = [](Scene& scene) { scene.small_disk->fill(); };
  fault.end = [](Scene& scene) { scene.small_disk->make_room(); };
  check(fault);
}

// What somebody may leave where others look for jobs.
Fault planted(const std::string& name, std::function<void(const fs::path&)> plant) {
  Fault fault;
  fault.name = name;
  fault.begin = [plant = std::move(plant)](Scene& scene) {
    const fs::path jobs = scene.places.output / ".gradmon" / "jobs";
    fs::create_directories(jobs);
    plant(jobs / "planted.json");
    const fs::path own = jobs / "first.json";
    fs::remove(own);
    plant(own);
  };
  return fault;
}

TEST_CASE("somebody plants an entry beside the job's") {
  check(planted("planted entry", [](const fs::path& path) {
    write_text(path, R"({"epoch":"00","launch_id":"first","host":"elsewhere","endpoint":"ipc:///dev/null",)"
                     R"("address":"tcp://127.0.0.1:1","started":4102444800000})");
    if (chown(path.c_str(), 65534, 65534) != 0) throw std::runtime_error("chown");
  }));
}

TEST_CASE("somebody plants a FIFO beside the job's entry") {
  check(planted("planted FIFO", [](const fs::path& path) {
    if (mkfifo(path.c_str(), 0666) != 0) throw std::runtime_error("mkfifo");
  }));
}

TEST_CASE("somebody plants a link to /dev/zero beside the job's entry") {
  check(planted("planted link to /dev/zero",
                [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }));
}

}  // namespace
}  // namespace gradmon
