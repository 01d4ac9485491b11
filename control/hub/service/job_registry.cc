// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/job_registry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "control/host/json_field.h"
#include "control/host/process_identity.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kRecordBytes = 2048;
constexpr std::int64_t kMostJobs = 50;
constexpr std::size_t kLongestText = 300;
// Milliseconds. A save of the announced bytes that is older or younger than this is the user's.
constexpr std::int64_t kWritesWithin = 5'000;
constexpr std::int64_t kNsInMs = 1'000'000;

struct flock lock_of(short type, std::int64_t place, std::int64_t count) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = place * kRecordBytes;
  lock.l_len = count * kRecordBytes;
  return lock;
}

bool lock_place(int fd, std::int64_t place) {
  struct flock lock = lock_of(F_WRLCK, place, 1);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// Whether another process holds a lock on one of the records.
bool is_held(int fd, std::int64_t place, std::int64_t count) {
  struct flock lock = lock_of(F_WRLCK, place, count);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string for_people(const JobRegistry::Job& job) {
  return "job " + (job.name.empty() ? job.launch_id : job.name + " (launch " + job.launch_id + ")") + " on " +
         job.host;
}

}  // namespace

JobRegistry::JobRegistry(fs::path file, Job own) : file_(std::move(file)), own_{std::move(own), {}, 0} {
  for (std::string* text : {&own_.job.launch_id, &own_.job.name, &own_.job.host})
    text->resize(std::min(text->size(), kLongestText));
}

JobRegistry::~JobRegistry() {
  if (place_ < 0 || !is_there()) return;
  struct flock free = lock_of(F_UNLCK, place_, 1);
  ::fcntl(fd_.get(), F_OFD_SETLK, &free);
  // A job that takes a place between these two calls notices that the file has vanished, and makes a new one.
  if (!is_held(fd_.get(), 0, kMostJobs)) ::unlink(file_.c_str());
}

bool JobRegistry::is_there() const {
  struct stat there {};
  struct stat here {};
  return fd_.valid() && ::lstat(file_.c_str(), &there) == 0 && ::fstat(fd_.get(), &here) == 0 &&
         there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

bool JobRegistry::take_place() {
  if (place_ >= 0 && is_there()) return true;
  place_ = -1;
  fd_.reset(::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat found {};
  if (!fd_.valid() || ::fstat(fd_.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_uid != ::geteuid() || found.st_size > kMostJobs * kRecordBytes)
    return false;
  for (std::int64_t place = 0; place < kMostJobs && place_ < 0; ++place) {
    if (lock_place(fd_.get(), place)) place_ = place;
  }
  if (place_ >= 0) put_record();
  return place_ >= 0;
}

void JobRegistry::put_record() {
  const Json json{{"launch_id", own_.job.launch_id}, {"name", own_.job.name},
                  {"host", own_.job.host},           {"sha256", own_.written.sha256},
                  {"size", own_.written.size},       {"mtime_ns", own_.written.mtime_ns},
                  {"written_at", own_.written_at}};
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize(kRecordBytes, '\0');
  [[maybe_unused]] const ssize_t n = ::pwrite(fd_.get(), text.data(), text.size(), place_ * kRecordBytes);
}

std::vector<JobRegistry::Record> JobRegistry::others() const {
  std::vector<Record> records;
  struct stat found {};
  if (place_ < 0 || !is_held(fd_.get(), 0, kMostJobs) || ::fstat(fd_.get(), &found) != 0) return records;
  const std::int64_t places = std::min(kMostJobs, found.st_size / kRecordBytes);
  for (std::int64_t place = 0; place < places; ++place) {
    if (place == place_ || !is_held(fd_.get(), place, 1)) continue;
    std::array<char, kRecordBytes> bytes{};
    if (::pread(fd_.get(), bytes.data(), bytes.size() - 1, place * kRecordBytes) < 0) continue;
    const Json json = Json::parse(std::string(bytes.data()), nullptr, false);
    if (!json.is_object()) continue;
    Record record{{field<std::string>(json, "launch_id"), field<std::string>(json, "name"),
                   field<std::string>(json, "host")},
                  {field<std::int64_t>(json, "mtime_ns"), field<std::uint64_t>(json, "size"),
                   field<std::string>(json, "sha256")},
                  field<std::int64_t>(json, "written_at")};
    // An ending hub of this same job is not another job.
    if (record.job.launch_id != own_.job.launch_id) records.push_back(std::move(record));
  }
  return records;
}

std::vector<std::string> JobRegistry::look() {
  std::vector<std::string> names;
  if (!take_place()) return names;
  for (const Record& record : others()) names.push_back(for_people(record.job));
  return names;
}

void JobRegistry::about_to_write(const std::string& sha256) {
  own_.written = {0, 0, sha256};
  own_.written_at = wall_now();
  if (take_place()) put_record();
}

void JobRegistry::has_written(const FileIdentity& save) {
  own_.written = save;
  if (take_place()) put_record();
}

std::optional<std::string> JobRegistry::writer_of(const FileIdentity& save) {
  if (!take_place()) return {};
  for (const Record& record : others()) {
    const FileIdentity& written = record.written;
    if (written.sha256.empty() || written.sha256 != save.sha256) continue;
    const std::int64_t apart = std::llabs(save.mtime_ns / kNsInMs - record.written_at);
    const bool same = written.mtime_ns != 0 ? written.mtime_ns == save.mtime_ns : apart <= kWritesWithin;
    if (same) return for_people(record.job);
  }
  return {};
}

}  // namespace gradmon
