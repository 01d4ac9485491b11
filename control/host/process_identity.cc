// SPDX-License-Identifier: Apache-2.0
#include "control/host/process_identity.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <sstream>

namespace gradmon {
namespace {

std::string hex(const unsigned char* bytes, std::size_t count) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4U];
    text += digits[bytes[i] & 15U];
  }
  return text;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::uint64_t process_start_of(std::int64_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return 0;
  // The command name may contain any character, but it ends at the last ')'. The start time is field 22,
  // the twentieth after the name (proc(5)).
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  fields >> state;
  if (state == "Z") return 0;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

bool process_lives(std::int64_t pid, std::uint64_t process_start) {
  const std::uint64_t start = process_start_of(pid);
  return start != 0 && (process_start == 0 || start == process_start);
}

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t n = getrandom(raw.data() + got, bytes - got, 0);
    if (n > 0) got += static_cast<std::size_t>(n);
  }
  return hex(reinterpret_cast<const unsigned char*>(raw.data()), bytes);
}

std::int64_t wall_now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace gradmon
