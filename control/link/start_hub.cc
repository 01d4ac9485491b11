// SPDX-License-Identifier: Apache-2.0
#include "control/link/start_hub.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "control/host/child_process.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Problem = tl::unexpected<std::string>;
using Clock = std::chrono::steady_clock;

constexpr char kName[] = "gradmon-hub";

bool runnable(const fs::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

tl::expected<void, std::string> check_exit_status(const std::string& program, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const bool exited = WIFEXITED(status);
  return Problem(program + (exited ? ": exited with status " : ": was killed by signal ") +
                 std::to_string(exited ? WEXITSTATUS(status) : WTERMSIG(status)));
}

// True if the process has ended. ECHILD counts as ended: other code has reaped the process, or the program
// ignores SIGCHLD. `status` is then unchanged.
bool has_ended(pid_t pid, int& status) {
  pid_t got = 0;
  do {
    got = ::waitpid(pid, &status, WNOHANG);
  } while (got < 0 && errno == EINTR);
  return got != 0;
}

bool ends_within(std::chrono::milliseconds most_wait, pid_t pid, int& status) {
  const auto deadline = Clock::now() + most_wait;
  for (int nap = 1;; nap = std::min(2 * nap, 20)) {
    if (has_ended(pid, status)) return true;
    if (Clock::now() >= deadline) return false;
    ::poll(nullptr, 0, nap);
  }
}

tl::expected<void, std::string> spawn_and_wait(const HubCommand& command) {
  const std::string program = command.program.string();
  std::vector<std::string> arguments{program, command.directory.path.string()};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  SpawnOptions options;
  options.new_session = true;
  pid_t pid = 0;
  const int error =
      spawn(program, exec_pointers(arguments), exec_pointers(command.environment).data(), options, pid);
  if (error != 0) return Problem("cannot start " + program + ": " + std::generic_category().message(error));

  int status = 0;
  if (ends_within(command.most_wait, pid, status)) return check_exit_status(program, status);
  ::kill(pid, SIGKILL);
  ends_within(std::chrono::milliseconds(100), pid, status);
  return Problem(program + ": did not daemonise within " + std::to_string(command.most_wait.count()) +
                 " ms: killed");
}

}  // namespace

fs::path own_object() {
  Dl_info ours{};
  Dl_info program{};
  std::error_code error;
  if (::dladdr(reinterpret_cast<const void*>(&own_object), &ours) == 0) return {};
  // For the program itself dladdr returns argv[0], which need not be a path.
  const bool known = ::dladdr(reinterpret_cast<const void*>(::getauxval(AT_PHDR)), &program) != 0;
  const bool in_program = !known || program.dli_fbase == ours.dli_fbase;
  const fs::path object = fs::canonical(in_program ? "/proc/self/exe" : ours.dli_fname, error);
  return error ? fs::path() : object;
}

tl::expected<fs::path, std::string> find_hub_program(const EnvironmentLookup& environment,
                                                     const fs::path& object) {
  std::string tried;
  if (!object.empty()) {
    const fs::path directory = object.parent_path();
    for (const fs::path& place : {directory, directory.parent_path(), directory.parent_path() / "bin",
                                  directory.parent_path() / "lib"}) {
      fs::path file = place / kName;
      if (runnable(file)) return file;
      tried += (tried.empty() ? "tried " : ", ") + file.string();
    }
  }
  const auto named = environment("GRADMON_HUB");
  if (named && fs::path(*named).is_absolute() && runnable(*named)) return fs::path(*named);
  const std::string why = std::string(kName) + " not found: " + tried + (tried.empty() ? "" : "; ");
  if (named && !named->empty())
    return Problem(why + "GRADMON_HUB=\"" + *named + "\" is not the absolute path of an executable");
  return Problem(why + "set GRADMON_HUB to its absolute path");
}

std::vector<std::string> hub_environment() {
  std::vector<std::string> kept;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string text = *entry;
    if (text.rfind("LD_PRELOAD=", 0) != 0) kept.push_back(std::move(text));
  }
  return kept;
}

tl::expected<void, std::string> start_hub(const HubCommand& command) noexcept {
  try {
    return spawn_and_wait(command);
  } catch (...) {
    return Problem(std::string("out of memory"));  // Short enough for std::string's internal buffer.
  }
}

}  // namespace gradmon
