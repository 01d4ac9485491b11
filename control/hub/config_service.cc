// SPDX-License-Identifier: Apache-2.0
#include "control/hub/config_service.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "control/files/file_access.h"
#include "control/host/child_process.h"
#include "control/host/json_field.h"
#include "control/hub/transport/rendezvous.h"
#include "control/log.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

fs::path whole_path(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  return (error ? path : whole).lexically_normal();
}

constexpr std::chrono::seconds kLookForJobsEvery{2};

fs::path jobs_file_path(const fs::path& config) {
  std::error_code error;
  const fs::path resolved = fs::canonical(config, error);
  const fs::path& target = error ? config : resolved;
  return target.parent_path() / ("." + target.filename().string() + ".gradmon-jobs");
}

constexpr std::int64_t kRecordBytes = 2048;
constexpr std::int64_t kMostJobs = 50;
constexpr std::size_t kLongestText = 400;  // bytes in a record; three texts and the numbers fit
// Milliseconds. A save of the announced bytes with a larger difference in time is the user's.
constexpr std::int64_t kWritesWithin = 5'000;
constexpr std::int64_t kNsInMs = 1'000'000;

struct flock make_lock(short type, std::int64_t slot, std::int64_t count) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot * kRecordBytes;
  lock.l_len = count * kRecordBytes;
  return lock;
}

bool lock_record(int fd, std::int64_t slot) {
  struct flock lock = make_lock(F_WRLCK, slot, 1);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// True if another process holds a lock on one of the records.
bool is_held(int fd, std::int64_t slot, std::int64_t count) {
  struct flock lock = make_lock(F_WRLCK, slot, count);
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

WriteBackNote::WriteBackNote(const fs::path& output_dir, const fs::path& config_path)
    : note_(output_dir / ".gradmon" / "writeback.json"), config_path_(whole_path(config_path)) {}

Result<void> WriteBackNote::write(const FileIdentity& save) const {
  const Json note{{"config", config_path_.string()},
                  {"mtime_ns", save.mtime_ns},
                  {"size", save.size},
                  {"sha256", save.sha256}};
  const std::string text = note.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (read_trusted_file(note_) == text) return {};
  if (auto made = make_directories(note_.parent_path()); !made) return made;
  auto replaced = replace_file(note_, text, 0640);
  if (replaced) sync_directory(note_.parent_path());
  return replaced;
}

std::optional<FileIdentity> WriteBackNote::read() const {
  try {
    const Json note = Json::parse(read_trusted_file(note_));
    if (note.at("config") != config_path_.string()) return std::nullopt;
    return FileIdentity{note.at("mtime_ns").get<std::int64_t>(), note.at("size").get<std::uint64_t>(),
                        note.at("sha256").get<std::string>()};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void WriteBackNote::remove() const { ::unlink(note_.c_str()); }

JobRegistry::JobRegistry(fs::path file, Job own) : file_(std::move(file)), own_{std::move(own), {}} {
  for (std::string* text : {&own_.job.launch_id, &own_.job.name, &own_.job.host})
    *text = shortened(std::move(*text));
}

JobRegistry::~JobRegistry() {
  if (slot_ < 0 || !is_there()) return;
  struct flock free = make_lock(F_UNLCK, slot_, 1);
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

std::optional<std::string> JobRegistry::find_writer(const FileIdentity& save) {
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

struct ConfigService::OnDisk {
  // Open while the config is watched.
  struct Watched {
    using Clock = std::chrono::steady_clock;

    Watched(const fs::path& path, const fs::path& spare, const JobRegistry::Job& own)
        : jobs(jobs_file_path(path), own), file(path, &Clock::now, spare) {}

    JobRegistry jobs;  // Before `file`: a job that is not registered any more does not touch the file.
    ConfigFile file;
    Clock::time_point next_look{};
    std::vector<std::string> others;
    std::vector<std::string> superseded;
  };

  const fs::path path;
  const fs::path spare;  // for side files that the directory of the config refuses
  const JobRegistry::Job own;
  const WriteBackNote note;
  // Owned by the watch of the disk thread, so that its destructor, which does file I/O, runs there.
  std::weak_ptr<Watched> watched = {};
  bool recovered = false;  // an earlier job's write-back is finished

  Edited edit(const Edits& edits, const std::optional<FileIdentity>& based_on) try {
    const auto open = watched.lock();
    if (!open) return tl::unexpected(EditError{EditError::Kind::unwritable, "it is not watched"});
    const auto announce = [&](const std::string& sha256) { open->jobs.about_to_write(sha256); };
    auto edited = open->file.edit(edits, based_on, announce);
    if (edited) open->jobs.has_written(edited->identity);
    return edited;
  } catch (const std::exception& error) {
    return tl::unexpected(EditError{EditError::Kind::unwritable, error.what()});
  }

  Edited write_back(const FileIdentity& save) {
    if (auto left = note.write(save); !left) log_debug("no note of the write-back: " + left.error());
    auto edited = edit({{"dynamic_on", "false"}}, save);
    // If the file could not be written, the write-back is still due: the note stays for the next job.
    if (edited || edited.error().kind == EditError::Kind::changed) note.remove();
    return edited;
  }

  std::optional<Content> look(ConfigFile& file) {
    auto content = file.poll();
    if (recovered || !content || !*content) return content;
    recovered = true;
    const auto due = note.read();
    if (!due) return content;
    auto edited = *due == (*content)->identity ? write_back(*due) : tl::unexpected(EditError{});
    if (!edited) {
      note.remove();
      return content;
    }
    log_info("writing back dynamic_on for an earlier job that has finished");
    return std::move(*edited);
  }
};

ConfigService::ConfigService(const Place& place, DiskThread& disk, std::shared_ptr<Mailbox> mailbox)
    : disk_(disk),
      mailbox_(std::move(mailbox)),
      file_(new OnDisk{place.config, place.output_dir / ".gradmon", place.own,
                       WriteBackNote(place.output_dir, place.config)}) {}

void ConfigService::watch(Watcher watcher) {
  disk_.watch([on_disk = file_, mailbox = mailbox_, watcher = std::move(watcher)] {
    const auto open = std::make_shared<OnDisk::Watched>(on_disk->path, on_disk->spare, on_disk->own);
    on_disk->watched = open;
    DiskThread::Watch watch;
    watch.fd = [open] { return open->file.event_fd(); };
    watch.timeout = [open] { return open->file.next_poll(); };
    watch.on_event = [on_disk, open, mailbox, watcher] {
      while (auto content = on_disk->look(open->file)) {
        const auto writer = *content ? open->jobs.find_writer((*content)->identity) : std::nullopt;
        mailbox->post([watcher, content = std::move(*content), writer = writer.value_or("")]() mutable {
          watcher.on_content(std::move(content), writer);
        });
      }
      const auto now = OnDisk::Watched::Clock::now();
      if (now < open->next_look) return;
      open->next_look = now + kLookForJobsEvery;
      auto others = open->jobs.refresh();
      auto superseded = open->file.superseded_saves();
      if (others == open->others && superseded == open->superseded) return;
      open->others = others;
      open->superseded = superseded;
      mailbox->post([watcher, others, superseded] { watcher.on_notices(others, superseded); });
    };
    return watch;
  });
}

void ConfigService::note_ranks(JobRegistry::Ranks ranks) {
  disk_.post([file = file_, ranks] {
    if (const auto open = file->watched.lock()) open->jobs.note_ranks(ranks);
  });
}

void ConfigService::edit(Edits edits, std::function<void(Edited)> done) {
  disk_.post([file = file_, mailbox = mailbox_, edits = std::move(edits), done = std::move(done)] {
    mailbox->post([done, edited = file->edit(edits, {})]() mutable { done(std::move(edited)); });
  });
}

void ConfigService::write_back(FileIdentity save, std::function<void(Edited)> done) {
  disk_.post([file = file_, mailbox = mailbox_, save = std::move(save), done = std::move(done)] {
    mailbox->post([done, edited = file->write_back(save)]() mutable { done(std::move(edited)); });
  });
}

}  // namespace gradmon
