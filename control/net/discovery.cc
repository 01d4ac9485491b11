// SPDX-License-Identifier: Apache-2.0
#include "control/net/discovery.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "control/net/private_directory.h"
#include "control/net/process_identity.h"
#include "control/net/socket_directory.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Jobs = std::vector<JobEntry>;

constexpr char kName[] = "gradmon.json";
const std::string kStorePrefix = "gradmon/job/";
constexpr auto kReplace = Json::error_handler_t::replace;

std::string problem(const fs::path& path) { return path.string() + ": " + std::strerror(errno); }

Json to_json(const JobEntry& job) {
  return {{"epoch", job.epoch},
          {"launcher_id", job.launcher_id},
          {"endpoint", job.endpoint},
          {"state_endpoint", job.state_endpoint},
          {"host", job.host},
          {"pid", job.pid},
          {"process_start", job.process_start},
          {"started", job.started},
          {"trouble", job.trouble}};
}

template <class T>
T field(const Json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end()) return {};
  if constexpr (std::is_same_v<T, std::string>) {
    return at->is_string() ? at->get<T>() : T{};
  } else {
    return at->is_number_integer() ? at->get<T>() : T{};
  }
}

JobEntry from_json(const Json& json) {
  return {field<std::string>(json, "epoch"),
          field<std::string>(json, "launcher_id"),
          field<std::string>(json, "endpoint"),
          field<std::string>(json, "state_endpoint"),
          field<std::string>(json, "host"),
          field<std::int64_t>(json, "pid"),
          field<std::uint64_t>(json, "process_start"),
          field<std::int64_t>(json, "started"),
          field<std::string>(json, "trouble")};
}

// Held while the list is changed. A holder that hangs is not waited for longer
// than two seconds; a forked child that shares the descriptor keeps no lock.
class ListLock {
 public:
  explicit ListLock(const fs::path& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640)) {
    constexpr int tries = 200;
    constexpr std::chrono::milliseconds pause{10};
    for (int i = 0; fd_ >= 0 && !held_ && i < tries; ++i) {
      held_ = flock(fd_, LOCK_EX | LOCK_NB) == 0;
      if (!held_) std::this_thread::sleep_for(pause);
    }
  }
  ~ListLock() {
    if (fd_ < 0) return;
    if (held_) flock(fd_, LOCK_UN);
    close(fd_);
  }
  ListLock(const ListLock&) = delete;
  ListLock& operator=(const ListLock&) = delete;
  bool held() const { return held_; }

 private:
  const int fd_;
  bool held_ = false;
};

tl::expected<void, std::string> write_jobs(const fs::path& path, const Jobs& jobs) {
  Json list = Json::array();
  for (const JobEntry& job : jobs) list.push_back(to_json(job));
  const fs::path beside = path.string() + "." + random_hex(8);
  std::ofstream out(beside);
  out << list.dump(2, ' ', false, kReplace) << '\n';
  out.close();
  if (!out || rename(beside.c_str(), path.c_str()) != 0) {
    std::string why = problem(path);
    unlink(beside.c_str());
    return tl::unexpected(std::move(why));
  }
  return {};
}

tl::expected<void, std::string> change_jobs(const fs::path& output_dir,
                                            const std::function<void(Jobs&)>& change) {
  if (auto made = make_private_directory(output_dir); !made) return made;
  const ListLock lock(output_dir / (std::string(".") + kName + ".lock"));
  if (!lock.held()) return tl::unexpected(problem(output_dir));
  auto jobs = read_jobs(output_dir);
  Jobs list = jobs ? std::move(*jobs) : Jobs{};  // A broken list is replaced: it can be read by nobody.
  change(list);
  return write_jobs(output_dir / kName, list);
}

bool gone(const JobEntry& job) {
  return job.host == host_name() && !process_lives(job.pid, job.process_start);
}

}  // namespace

tl::expected<Jobs, std::string> read_jobs(const fs::path& output_dir) {
  std::ifstream in(output_dir / kName);
  if (!in) return Jobs{};
  std::ostringstream text;
  text << in.rdbuf();
  const Json list = Json::parse(text.str(), nullptr, false);
  if (!list.is_array()) return tl::unexpected((output_dir / kName).string() + ": not a list of jobs");
  Jobs jobs;
  for (const Json& json : list) {
    if (json.is_object()) jobs.push_back(from_json(json));
  }
  return jobs;
}

Jobs live_jobs(Jobs jobs) {
  const auto unreachable = [](const JobEntry& job) { return gone(job) || job.endpoint.empty(); };
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(), unreachable), jobs.end());
  return jobs;
}

tl::expected<void, std::string> add_job(const fs::path& output_dir, const JobEntry& job) {
  return change_jobs(output_dir, [&](Jobs& jobs) {
    for (const JobEntry& old : jobs) {
      if (gone(old) && old.endpoint != job.endpoint) remove_socket_directory(old.endpoint);
    }
    jobs.erase(std::remove_if(jobs.begin(), jobs.end(), gone), jobs.end());
    jobs.push_back(job);
  });
}

std::optional<JobEntry> newest_job(Jobs jobs, const std::string& launcher_id) {
  std::optional<JobEntry> newest;
  for (JobEntry& job : jobs) {
    const bool ours = job.launcher_id == launcher_id && !gone(job);
    if (ours && (!newest || job.started >= newest->started)) newest = std::move(job);
  }
  return newest;
}

std::string out_of_reach(const JobEntry& job) {
  if (job.endpoint.empty()) return "rank 0 has no network: " + job.trouble;
  constexpr char ipc[] = "ipc://";
  const bool a_file = job.endpoint.rfind(ipc, 0) == 0;
  if (!a_file || job.host == host_name() || access(job.endpoint.c_str() + std::strlen(ipc), F_OK) == 0)
    return "";
  return "rank 0 is on another host (" + job.host +
         ") and listens on a Unix socket: give it GRADMON_ENDPOINT=tcp://ADDRESS:PORT and GRADMON_KEYS";
}

tl::expected<void, std::string> put_job(SharedStore& store, const JobEntry& job) {
  return store.put(kStorePrefix + job.launcher_id, to_json(job).dump(-1, ' ', false, kReplace));
}

tl::expected<std::optional<JobEntry>, std::string> get_job(SharedStore& store,
                                                           const std::string& launcher_id) {
  const auto text = store.get(kStorePrefix + launcher_id);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return std::nullopt;
  const Json json = Json::parse(**text, nullptr, false);
  if (!json.is_object()) return tl::unexpected(kStorePrefix + launcher_id + " in the store is no job");
  return newest_job({from_json(json)}, launcher_id);
}

tl::expected<void, std::string> remove_job(const fs::path& output_dir, const std::string& epoch) {
  return change_jobs(output_dir, [&](Jobs& jobs) {
    jobs.erase(
        std::remove_if(jobs.begin(), jobs.end(), [&](const JobEntry& job) { return job.epoch == epoch; }),
        jobs.end());
  });
}

}  // namespace gradmon
