// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/config/config_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "control/client/access_denial.h"
#include "control/config/config_parser.h"
#include "control/files/durable_file.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

constexpr std::size_t kTooLong = (std::size_t{1} << 20) + 1;  // The parser refuses texts over 1 MiB.

}  // namespace

tl::expected<std::string, std::string> read_config_text(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  std::string text;
  std::array<char, 64 * 1024> buffer;
  ssize_t size = fd < 0 ? -1 : 1;
  while (size > 0 && text.size() < kTooLong) {
    size = read(fd, buffer.data(), buffer.size());
    if (size > 0) text.append(buffer.data(), static_cast<std::size_t>(size));
    if (size < 0 && errno == EINTR) size = 1;
  }
  const int cause = errno;
  if (fd >= 0) close(fd);
  if (size >= 0) return text;
  const std::string denial = cause == EACCES ? access_denial(file, Access::read) : "";
  return tl::make_unexpected(denial.empty() ? file + ": " + std::strerror(cause) : denial);
}

int report_config_problems(const std::string& text, const std::string& file, const Console& console) {
  const auto parsed = parse_config(text, file);
  if (!parsed) {
    for (const ConfigError& error : parsed.error()) console.err << printable(to_string(error)) << '\n';
    return kExitInvalidConfig;
  }
  for (const ConfigWarning& warning : parsed->warnings) {
    console.err << "warning: " << printable(to_string(warning)) << '\n';
  }
  return kExitDone;
}

int make_config_file(const std::string& file, const std::string& text, Existing existing,
                     const Console& console) {
  const auto failed = [&](int cause) { return report_error(file + ": " + std::strerror(cause), console); };
  const int how = existing == Existing::keep ? O_EXCL : O_TRUNC;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | how | O_CLOEXEC, 0640);
  if (fd < 0) return failed(errno);
  int cause = write_all(fd, text) ? 0 : errno;
  if (close(fd) != 0 && cause == 0) cause = errno;
  if (cause == 0) return kExitDone;
  if (existing == Existing::keep) unlink(file.c_str());
  return failed(cause);
}

tl::expected<std::string, int> valid_config_text(const std::string& file, const Console& console) {
  auto text = read_config_text(file);
  if (!text) return tl::make_unexpected(report_error(text.error(), console));
  if (const int code = report_config_problems(*text, file, console); code != kExitDone)
    return tl::make_unexpected(code);
  return std::move(*text);
}

}  // namespace gradmon
