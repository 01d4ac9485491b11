// SPDX-License-Identifier: Apache-2.0
#include "control/config/file_content.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "control/config/json_text.h"
#include "control/files/descriptor.h"
#include "control/files/file_access.h"

namespace gradmon {
namespace {

using Problem = tl::unexpected<std::string>;

Problem system_problem(int code) {
  if (code == ENOENT) return Problem("there is no such file");
  return Problem("it cannot be read: " + std::generic_category().message(code));
}

Result<FileSignature> sign(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return Problem("it is not a regular file");
  if (static_cast<std::uint64_t>(status.st_size) > kMaxJsonBytes) return Problem("it is larger than 1 MiB");
  const auto nanoseconds = [](const timespec& time) {
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  };
  return FileSignature{status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
                       nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

}  // namespace

Result<FileSignature> sign_file(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return system_problem(errno);
  return sign(status);
}

Result<FileRead> read_file(const fs::path& path) {
  if (const auto first = sign_file(path); !first) return Problem(first.error());
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return system_problem(errno);
  return read_open_file(file.get());
}

Result<FileRead> read_open_file(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || ::lseek(fd, 0, SEEK_SET) != 0) return system_problem(errno);
  auto signature = sign(status);
  if (!signature) return Problem(signature.error());

  FileRead out;
  out.signature = *signature;
  auto& text = out.content.text;
  if (!read_rest(fd, kMaxJsonBytes, text)) return system_problem(errno);
  if (text.size() > kMaxJsonBytes) return Problem("it is larger than 1 MiB");
  out.content.identity = {signature->mtime_ns, text.size(), sha256_hex(text)};
  return out;
}

std::string sha256_hex(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::array<char, crypto_hash_sha256_BYTES * 2 + 1> hex{};
  sodium_bin2hex(hex.data(), hex.size(), hash.data(), hash.size());
  return {hex.data(), hex.size() - 1};
}

}  // namespace gradmon
