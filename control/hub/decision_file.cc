// SPDX-License-Identifier: Apache-2.0
#include "control/hub/decision_file.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

#include "control/files/file_access.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

constexpr char kMagic[] = "gradmon decisions 1\n";
constexpr std::int64_t kReserveAtOnce = 1 << 20;
constexpr std::size_t kSumBytes = crypto_generichash_BYTES_MIN;
constexpr std::size_t kHeadBytes = sizeof(std::uint32_t) + kSumBytes;

using Sum = std::array<unsigned char, kSumBytes>;

Sum checksum(std::string_view bytes) {
  Sum sum{};
  crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size(), nullptr, 0);
  return sum;
}

// The entry with its head.
std::string encode_record(std::string_view bytes) {
  std::string record(kHeadBytes, '\0');
  const auto length = static_cast<std::uint32_t>(bytes.size());
  const Sum sum = checksum(bytes);
  std::memcpy(record.data(), &length, sizeof length);
  std::memcpy(record.data() + sizeof length, sum.data(), sum.size());
  record += bytes;
  return record;
}

std::string header_text(const JobIdentity& header) {
  return kMagic + header.epoch + '\n' + header.run_id + '\n' + std::to_string(header.started) + '\n' +
         header.launch_id;
}

std::optional<JobIdentity> read_header(std::string_view text) {
  const std::string_view mark = kMagic;
  if (text.substr(0, mark.size()) != mark) return {};
  text.remove_prefix(mark.size());
  const auto line = [&] {
    const auto end = text.find('\n');
    std::string taken(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return taken;
  };
  JobIdentity header;
  header.epoch = line();
  header.run_id = line();
  header.started = std::strtoll(line().c_str(), nullptr, 10);
  header.launch_id = std::string(text);
  return header;
}

std::string contents(int fd) {
  std::string all;
  if (lseek(fd, 0, SEEK_SET) == 0) static_cast<void>(read_rest(fd, std::string::npos - 1, all));
  return all;
}

// Returns the entry at `at` and moves `at` behind it; nullopt without a complete entry.
std::optional<std::string_view> next_entry(std::string_view all, std::size_t& at) {
  if (all.size() - at < kHeadBytes) return {};
  std::uint32_t length = 0;
  std::memcpy(&length, all.data() + at, sizeof length);
  if (length == 0 || all.size() - at - kHeadBytes < length) return {};
  const std::string_view bytes = all.substr(at + kHeadBytes, length);
  const Sum sum = checksum(bytes);
  if (std::memcmp(sum.data(), all.data() + at + sizeof length, sum.size()) != 0) return {};
  at += kHeadBytes + length;
  return bytes;
}

}  // namespace

Result<DecisionFile::Opened> DecisionFile::open(const fs::path& path, JobIdentity fresh, Bounds bounds) {
  if (sodium_init() < 0) return tl::unexpected(std::string("libsodium does not start"));
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat status {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0) return path_error(path, errno);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || status.st_size > bounds.most_bytes)
    return tl::unexpected(path.string() + ": expected a regular file of this user of at most " +
                          std::to_string(bounds.most_bytes >> 20) + " MiB");
  const std::string all = contents(fd.get());
  std::size_t at = 0;
  const auto first = next_entry(all, at);
  auto header = first ? read_header(*first) : std::nullopt;
  Opened opened;
  if (header && header->launch_id == fresh.launch_id) {
    opened.identity = std::move(*header);
    std::size_t whole = at;
    while (const auto bytes = next_entry(all, at)) {
      auto entry = decode_log_entry(*bytes);
      if (entry) opened.entries.push_back(std::move(*entry));  // Otherwise a later release wrote it.
      whole = at;
    }
    // Bytes behind an incomplete entry must not be read as entries later.
    if (ftruncate(fd.get(), static_cast<off_t>(whole)) != 0) return path_error(path, errno);
    opened.file.reset(new DecisionFile(path, std::move(fd), static_cast<std::int64_t>(whole), bounds));
    opened.file->compact_if_due();
    static_cast<void>(opened.file->reserve(0));
    return opened;
  }
  if (ftruncate(fd.get(), 0) != 0) return path_error(path, errno);
  opened.file.reset(new DecisionFile(path, std::move(fd), 0, bounds));
  if (auto written = opened.file->append(header_text(fresh)); !written)
    return tl::unexpected(written.error());
  opened.identity = std::move(fresh);
  return opened;
}

Result<void> DecisionFile::reserve(std::int64_t bytes) {
  if (end_ + bytes + kReserveAtOnce / 2 <= reserved_) return {};
  if (end_ + bytes > bounds_.most_bytes)
    return tl::unexpected("the decision log has reached its bound of " +
                          std::to_string(bounds_.most_bytes >> 20) + " MiB");
  const std::int64_t wanted = std::min(bytes + kReserveAtOnce, bounds_.most_bytes - end_);
  if (const int error = posix_fallocate(file_.get(), end_, wanted); error == 0) {
    reserved_ = end_ + wanted;
    return {};
  }
  if (end_ + bytes <= reserved_) return {};
  return tl::unexpected(std::string("no room for the decision log"));
}

bool DecisionFile::is_at_its_path() const { return is_at_path(path_, file_.get()); }

bool DecisionFile::replace(const std::string& whole, int (*put)(const char* beside, const char* path)) {
  const fs::path beside = path_.string() + ".new";
  ::unlink(beside.c_str());
  Descriptor fresh(::open(beside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fresh.valid()) return false;
  const bool there = write_all(fresh.get(), whole) && put(beside.c_str(), path_.c_str()) == 0;
  const int cause = errno;
  ::unlink(beside.c_str());
  errno = cause;
  if (!there) return false;
  file_ = std::move(fresh);
  end_ = static_cast<std::int64_t>(whole.size());
  reserved_ = 0;
  static_cast<void>(reserve(0));
  return true;
}

Result<void> DecisionFile::relink() {
  const std::string whole = contents(file_.get()).substr(0, static_cast<std::size_t>(end_));
  if (replace(whole, ::link)) return {};
  return path_error(path_, errno);
}

Result<void> DecisionFile::copy_to(const fs::path& path) const {
  return replace_file(path, contents(file_.get()).substr(0, static_cast<std::size_t>(end_)), 0600);
}

void DecisionFile::compact_if_due() noexcept {
  if (end_ < compact_at_) return;
  try {
    compact();
  } catch (const std::bad_alloc&) {  // The log stays unchanged.
  }
  compact_at_ = std::max(bounds_.compact_at, 2 * end_);
}

// Leaves a log that was removed or replaced to relink().
void DecisionFile::compact() {
  if (!is_at_its_path()) return;
  const std::string all = contents(file_.get()).substr(0, static_cast<std::size_t>(end_));
  std::size_t at = 0;
  const auto header = next_entry(all, at);
  if (!header) return;
  std::vector<LogEntry> entries;
  while (const auto bytes = next_entry(all, at)) {
    auto entry = decode_log_entry(*bytes);
    if (entry) entries.push_back(std::move(*entry));
  }
  if (at != all.size()) return;
  std::string whole = encode_record(*header);
  for (const LogEntry& entry : compacted(entries, static_cast<std::size_t>(bounds_.compact_at / 4)))
    whole += encode_record(encode(entry));
  replace(whole, std::rename);
}

Result<void> DecisionFile::append(const LogEntry& entry) {
  auto appended = append(encode(entry));
  if (appended) compact_if_due();
  return appended;
}

Result<void> DecisionFile::append(std::string_view bytes) {
  const std::string record = encode_record(bytes);
  if (auto room = reserve(static_cast<std::int64_t>(record.size())); !room) return room;
  const bool written =
      lseek(file_.get(), static_cast<off_t>(end_), SEEK_SET) >= 0 && write_all(file_.get(), record);
  if (!written) return path_error("decision log", errno);
  end_ += static_cast<std::int64_t>(record.size());
  return {};
}

}  // namespace gradmon
