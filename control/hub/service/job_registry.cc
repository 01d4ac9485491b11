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
constexpr std::size_t kLongestText = 400;  // bytes in a record; three texts and the numbers fit
// Milliseconds. A save of the announced bytes with a larger difference in time is the user's.
constexpr std::int64_t kWritesWithin = 5'000;
constexpr std::int64_t kNsInMs = 1'000'000;

struct flock lock_of(short type, std::int64_t slot, std::int64_t count) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot * kRecordBytes;
  lock.l_len = count * kRecordBytes;
  return lock;
}

bool lock_record(int fd, std::int64_t slot) {
  struct flock lock = lock_of(F_WRLCK, slot, 1);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// True if another process holds a lock on one of the records.
bool is_held(int fd, std::int64_t slot, std::int64_t count) {
  struct flock lock = lock_of(F_WRLCK, slot, count);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// Shortens the text to kLongestText bytes in a record, with all escapes. Replaces invalid UTF-8.
std::string shortened(std::string text) {
  const auto escaped = [&] { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); };
  text.resize(std::min(text.size(), kLongestText));
  while (escaped().size() > kLongestText) text.pop_back();
  return Json::parse(escaped()).get<std::string>();
}

std::string for_people(const JobRegistry::Job& job) {
  return "job " + (job.name.empty() ? job.launch_id : job.name + " (launch " + job.launch_id + ")") + " on " +
         job.host;
}

}  // namespace

JobRegistry::JobRegistry(fs::path file, Job own) : file_(std::move(file)), own_{std::move(own), {}} {
  for (std::string* text : {&own_.job.launch_id, &own_.job.name, &own_.job.host})
    *text = shortened(std::move(*text));
}

JobRegistry::~JobRegistry() {
  if (slot_ < 0 || !is_there()) return;
  struct flock free = lock_of(F_UNLCK, slot_, 1);
  ::fcntl(fd_.get(), F_OFD_SETLK, &free);
  // A job that takes a slot between these two calls notices the missing file, and makes a new one.
  if (!is_held(fd_.get(), 0, kMostJobs)) ::unlink(file_.c_str());
}

bool JobRegistry::is_there() const { return is_at_path(file_, fd_.get()); }

bool JobRegistry::lock_slot() {
  if (slot_ >= 0 && is_there()) return true;
  slot_ = -1;
  fd_.reset(::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat found {};
  if (!fd_.valid() || ::fstat(fd_.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_uid != ::geteuid() || found.st_size > kMostJobs * kRecordBytes)
    return false;
  for (std::int64_t slot = 0; slot < kMostJobs && slot_ < 0; ++slot) {
    if (lock_record(fd_.get(), slot)) slot_ = slot;
  }
  if (slot_ >= 0) put_record();
  return slot_ >= 0;
}

void JobRegistry::put_record() {
  const Json json{{"launch_id", own_.job.launch_id}, {"name", own_.job.name},
                  {"host", own_.job.host},           {"sha256", own_.written.sha256},
                  {"size", own_.written.size},       {"mtime_ns", own_.written.mtime_ns},
                  {"written_at", own_.written_at},   {"ended", own_.ended ? 1 : 0}};
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize(kRecordBytes, '\0');
  [[maybe_unused]] const ssize_t n = ::pwrite(fd_.get(), text.data(), text.size(), slot_ * kRecordBytes);
}

std::vector<JobRegistry::Record> JobRegistry::others() const {
  std::vector<Record> records;
  struct stat found {};
  if (slot_ < 0 || !is_held(fd_.get(), 0, kMostJobs) || ::fstat(fd_.get(), &found) != 0) return records;
  const std::int64_t slots = std::min(kMostJobs, found.st_size / kRecordBytes);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    if (slot == slot_ || !is_held(fd_.get(), slot, 1)) continue;
    std::array<char, kRecordBytes> bytes{};
    if (::pread(fd_.get(), bytes.data(), bytes.size() - 1, slot * kRecordBytes) < 0) continue;
    const Json json = Json::parse(std::string(bytes.data()), nullptr, false);
    if (!json.is_object()) continue;
    Record record{{field<std::string>(json, "launch_id"), field<std::string>(json, "name"),
                   field<std::string>(json, "host")},
                  {field<std::int64_t>(json, "mtime_ns"), field<std::uint64_t>(json, "size"),
                   field<std::string>(json, "sha256")},
                  field<std::int64_t>(json, "written_at"),
                  field<std::int64_t>(json, "ended") != 0};
    // An ending hub of this same job is not another job.
    if (record.job.launch_id != own_.job.launch_id) records.push_back(std::move(record));
  }
  return records;
}

std::vector<std::string> JobRegistry::refresh() {
  std::vector<std::string> names;
  if (!lock_slot()) return names;
  for (const Record& record : others()) {
    if (!record.ended) names.push_back(for_people(record.job));
  }
  return names;
}

void JobRegistry::note_ranks(Ranks ranks) {
  own_.ended = ranks == Ranks::gone;
  if (lock_slot()) put_record();
}

void JobRegistry::about_to_write(const std::string& sha256) {
  own_.written = {0, 0, sha256};
  own_.written_at = wall_now();
  if (lock_slot()) put_record();
}

void JobRegistry::has_written(const FileIdentity& save) {
  own_.written = save;
  if (lock_slot()) put_record();
}

std::optional<std::string> JobRegistry::writer_of(const FileIdentity& save) {
  if (!lock_slot()) return {};
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
