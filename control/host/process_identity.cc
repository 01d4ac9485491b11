// SPDX-License-Identifier: Apache-2.0
#include "control/host/process_identity.h"

#include <sodium.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <sstream>

namespace gradmon {
std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::uint64_t process_start_ticks(std::int64_t pid) {
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

std::string random_hex(std::size_t bytes) {
  [[maybe_unused]] const int initialised = sodium_init();
  std::string raw(bytes, '\0');  // not a vector: its data() may be null
  randombytes_buf(raw.data(), raw.size());
  std::string hex(2 * bytes + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(raw.data()), raw.size());
  hex.pop_back();  // the terminating NUL
  return hex;
}

std::int64_t wall_now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace gradmon
