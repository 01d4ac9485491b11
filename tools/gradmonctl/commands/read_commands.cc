// SPDX-License-Identifier: Apache-2.0
// The commands that read what a job has written: the Python package gradmon_read carries them out.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "control/aliases.h"
#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {
namespace {

// The current directory is not searched for modules: it may hold any files.
constexpr const char* kStart = R"(import sys
sys.path[:] = [path for path in sys.path if path]
try:
    from gradmon_read.__main__ import program
except ModuleNotFoundError:
    sys.exit(f"gradmonctl: {sys.argv[1]} needs the Python package gradmon-read: "
             f"{sys.executable} -m pip install 'gradmon-read[analysis]'")
sys.exit(program())
)";

bool has_package(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / "gradmon_read" / "__main__.py", error);
}

// The Python that gradmon is installed in: GRADMON_PYTHON, set by the wheel's gradmonctl; that of the build
// tree; else the first on the PATH.
std::string interpreter(bool in_build_tree) {
  const char* given = std::getenv("GRADMON_PYTHON");
  if (given != nullptr && *given != '\0') return given;
  const bool usable = in_build_tree && access(GRADMON_READ_PYTHON, X_OK) == 0;
  return usable ? GRADMON_READ_PYTHON : "python3";
}

// Returns only if the interpreter cannot be started: the error.
std::string start_reader(const std::vector<std::string>& words) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path built = program.parent_path().parent_path() / "python";
  const fs::path beside = program.parent_path().parent_path();  // of the package gradmon
  const bool in_build_tree = has_package(built);
  if (in_build_tree || has_package(beside)) {
    const char* others = std::getenv("PYTHONPATH");
    const std::string first = (in_build_tree ? built : beside).string();
    setenv("PYTHONPATH", others == nullptr ? first.c_str() : (first + ':' + others).c_str(), 1);
  }
  setenv("PYTHONSAFEPATH", "1", 1);
  setenv("GRADMONCTL", program.c_str(), 1);
  std::string python = interpreter(in_build_tree);
  std::vector<char*> argv{python.data(), const_cast<char*>("-c"), const_cast<char*>(kStart)};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(python.c_str(), argv.data());
  return python + ": " + std::strerror(errno);
}

Subcommand read_subcommand(const char* name, const char* summary) {
  const auto words = std::make_shared<std::vector<std::string>>(1, name);
  Subcommand command{words, name, summary, {}, [words](const Console& console) {
                       return report_error(start_reader(*words), console);
                     }};
  command.all_words = words.get();
  return command;
}

}  // namespace

Subcommand query_subcommand() { return read_subcommand("query", "Search the rows of all ranks with SQL"); }

Subcommand convert_subcommand() {
  return read_subcommand("convert", "Turn what a job has written into another form");
}

Subcommand import_subcommand() {
  return read_subcommand("import",
                         "Make a config file of a MindSpore Transformers YAML file's monitoring keys");
}

Subcommand analyse_subcommand() {
  return read_subcommand("analyse", "Search what a job has written, without the job");
}

}  // namespace gradmon
