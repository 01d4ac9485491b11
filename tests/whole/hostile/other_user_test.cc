// SPDX-License-Identifier: Apache-2.0
// Access of another user of the same host to the files and sockets of a job.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <vector>

#include "control/hub/transport/curve_keys.h"
#include "tests/support/catch.h"
#include "tests/support/real_job.h"
#include "tests/whole/hostile/attack.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

bool opens(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

bool connects(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

// The ways in which this process can use a file of another user; "": none.
std::string allowed_access(const fs::path& path, fs::file_type type) {
  const std::string text = path.string();
  if (type == fs::file_type::socket) return connects(text) ? "connect " : "";
  std::string can = opens(text, O_RDONLY) ? "read " : "";
  if (type == fs::file_type::directory) return opens(text + "/x", O_WRONLY | O_CREAT) ? can + "create " : can;
  return opens(text, O_WRONLY) ? can + "write " : can;
}

struct Found {
  fs::path path;
  fs::file_type type;
};

std::vector<Found> list_files(const fs::path& directory) {
  std::vector<Found> all;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    all.push_back({entry.path(), entry.symlink_status().type()});
  return all;
}

// One line for each file that user nobody can use: the ways, then its path.
std::set<std::string> access_of_nobody(const std::vector<Found>& all, const fs::path& below) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::set<std::string> lines;
  Attack nobody([&] {
    for (const Found& found : all) {
      const std::string can = allowed_access(found.path, found.type);
      const std::string line = can + fs::path(found.path).lexically_relative(below).string() + "\n";
      if (!can.empty() && write(ends[1], line.data(), line.size()) < 0) return 1;
    }
    return 0;
  });
  close(ends[1]);
  std::string text;
  char c = 0;
  while (read(ends[0], &c, 1) == 1) {
    if (c == '\n') {
      lines.insert(text);
      text.clear();
    } else {
      text += c;
    }
  }
  close(ends[0]);
  CHECK(nobody.wait() == 0);
  return lines;
}

// Makes the job create every kind of file: socket, lock, decisions, logs, history, rows.
void collect_something(RealJob& job) {
  Command on;
  on.verb = CommandVerb::on;
  on.by = "tester";
  on.collect_times = 2;
  REQUIRE(job.ask(on).outcome == CommandOutcome::done);
  REQUIRE(eventually([&] { return job.status().reason == "finished"; }, std::chrono::seconds(60)));
}

RealJob::Options long_job() {
  RealJob::Options options;
  options.config = R"({"dynamic_on": false, "wg_distribution": true})";
  options.train = {"--steps", "100000000"};
  return options;
}

TEST_CASE("another user can use no socket or file or directory of a job") {
  if (geteuid() != 0) {
    WARN("skipped: needs root, to be another user");
    return;
  }
  RealJob job(long_job());
  REQUIRE(chmod(job.config_path.c_str(), 0600) == 0);  // Copies of the config get its mode.
  collect_something(job);
  REQUIRE(make_key_directory(job.directory() / "keys"));
  REQUIRE(add_client(job.directory() / "keys", {"alice", Role::read}));
  REQUIRE(chmod(job.directory().c_str(), 0755) == 0);
  const std::vector<Found> all = list_files(job.directory());
  std::size_t sockets = 0;
  for (const Found& found : all) sockets += found.type == fs::file_type::socket ? 1U : 0U;
  REQUIRE(sockets == 1);
  REQUIRE(all.size() > 15);
  CHECK(access_of_nobody(all, job.directory()) == std::set<std::string>{});
}

TEST_CASE("another user can only read a world-readable output directory and nothing in its .gradmon") {
  if (geteuid() != 0) {
    WARN("skipped: needs root, to be another user");
    return;
  }
  RealJob::Options options = long_job();
  options.before = "mkdir -p -m 755 \"$MONITOR_OUTPUT_DIR\";";
  RealJob job(options);
  collect_something(job);
  REQUIRE(chmod(job.directory().c_str(), 0755) == 0);
  REQUIRE(chmod(job.output_dir.c_str(), 0755) == 0);
  const std::set<std::string> lines = access_of_nobody(list_files(job.directory()), job.directory());
  REQUIRE(lines.count("read out") == 1);
  for (const std::string& line : lines) {
    CAPTURE(line);
    CHECK(line.rfind("read ", 0) == 0);
    CHECK(line.find(" write ") == line.npos);
    CHECK(line.find(" create ") == line.npos);
    CHECK(line.find(".gradmon/") == line.npos);
  }
}

}  // namespace
}  // namespace gradmon
