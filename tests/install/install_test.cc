// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// Installs this build into a temporary directory, and runs commands that use it.
class Installation {
 public:
  Installation() {
    run(GRADMON_CMAKE " --install " GRADMON_BUILD_DIR " --prefix " + prefix().string());
    write_text(scratch_ / "config.json", R"({"wg_distribution": true, "ops": ["norm"]})");
  }

  fs::path prefix() const { return scratch_ / "prefix"; }
  fs::path operator/(const std::string& name) const { return scratch_ / name; }

  // Runs a shell command outside the build tree and returns its output. If the command fails, so does the
  // test.
  std::string run(const std::string& command) const {
    const std::string output = (scratch_ / "output").string();
    // ccache knows the installed headers again, although they are in another directory each time.
    const std::string script = "cd " + scratch_.path().string() +
                               " && export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 && { " + command + "; } >" +
                               output + " 2>&1";
    const int code = std::system(script.c_str());
    const std::string printed = read_text(output);
    CAPTURE(command, printed);
    REQUIRE(code == 0);
    return printed;
  }

  // Checks that the program finds the libraries by itself, and collects: a row for each of two parameters in
  // each of three steps.
  void check(const fs::path& program) const {
    const std::string environment =
        "unset LD_LIBRARY_PATH; MONITOR_OUTPUT_DIR=" + (scratch_ / "out").string() +
        " DYNAMIC_MONITOR=False ";
    CHECK(run(environment + program.string() + " config.json 2>/dev/null") == "static\n");
    int rows = 0;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_ / "out")) {
      if (entry.path().filename().string().rfind("grad_reduced_", 0) != 0) continue;
      std::istringstream lines(read_text(entry.path()));
      for (std::string line; std::getline(lines, line);) ++rows;
      rows -= 1;  // the header
    }
    CHECK(rows == 6);
  }

  fs::path find(const std::string& name) const {
    for (const auto& entry : fs::recursive_directory_iterator(prefix())) {
      if (entry.path().filename() == name) return entry.path();
    }
    FAIL("not installed: " << name);
    return {};
  }

 private:
  TemporaryDirectory scratch_;
};

TEST_CASE("a program that finds gradmon by find_package builds and collects") {
  const Installation installed;
  const std::string launcher =
      GRADMON_CCACHE[0] == '\0' ? "" : " -DCMAKE_CXX_COMPILER_LAUNCHER=" GRADMON_CCACHE;
  installed.run(GRADMON_CMAKE " -S " GRADMON_CONSUMER " -B build -DCMAKE_CXX_COMPILER=" GRADMON_CXX
                              " -DCMAKE_PREFIX_PATH=" +
                installed.prefix().string() + launcher);
  installed.run(GRADMON_CMAKE " --build build");
  installed.check(installed / "build/three_steps");
}

TEST_CASE("find_package refuses another release of torch and names both") {
  const Installation installed;
  fs::create_directories(installed / "other/share/cmake/Torch");
  write_text(installed / "other/share/cmake/Torch/TorchConfig.cmake", "set(TORCH_LIBRARIES c)\n");
  write_text(installed / "other/share/cmake/Torch/TorchConfigVersion.cmake",
             "set(PACKAGE_VERSION 1.0.7)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n");
  const std::string said =
      installed.run("! " GRADMON_CMAKE " -S " GRADMON_CONSUMER " -B build -DCMAKE_CXX_COMPILER=" GRADMON_CXX
                    " '-DCMAKE_PREFIX_PATH=" +
                    (installed / "other").string() + ";" + installed.prefix().string() + "'");
  const std::string sentence = std::regex_replace(said, std::regex(R"(\s+)"), " ");  // cmake breaks lines
  CHECK(sentence.find("was built against torch ") != std::string::npos);
  CHECK(sentence.find("other/share/cmake/Torch has torch 1.0.7: build gradmon with ") != std::string::npos);
}

TEST_CASE("a program that finds gradmon by pkg-config builds and collects") {
  if (!full_scale()) {
    WARN("skipped: GRADMON_TEST_SCALE=full only");
    return;
  }
  const Installation installed;
  const std::string path = installed.find("gradmon.pc").parent_path().string();
  installed.run("export PKG_CONFIG_PATH=" + path +
                "; " GRADMON_CCACHE " " GRADMON_CXX " -c " GRADMON_CONSUMER
                "/three_steps.cc $(pkg-config --cflags gradmon) && " GRADMON_CXX
                " -o three_steps three_steps.o $(pkg-config --libs gradmon)");
  installed.check(installed / "three_steps");
}

TEST_CASE("the library exports what the public headers call and nothing else") {
  const Installation installed;
  std::istringstream symbols(
      installed.run("nm -DC --defined-only --extern-only " + installed.find("libgradmon.so").string()));
  int shown = 0;
  for (std::string line; std::getline(symbols, line); ++shown) {
    CAPTURE(line);
    const bool of_monitor = line.find(" gradmon::Monitor::") != std::string::npos;
    CHECK((of_monitor || line.find(" gradmon::forward_entry::") != std::string::npos));
    CHECK(line.find("Session") == std::string::npos);
  }
  CHECK(shown >= 8);
}

TEST_CASE("the library exports every member function of Monitor") {
  const Installation installed;
  const std::string symbols =
      installed.run("nm -DC --defined-only --extern-only " + installed.find("libgradmon.so").string());
  const std::string header = read_text(installed.find("monitor.h"));
  const std::size_t begin = header.find("\nclass Monitor {");
  const std::string members = header.substr(begin, header.find("\n private:", begin) - begin);
  const std::regex declared(R"(\n  (?!using)[A-Za-z:<>]+ (\w+)\()");
  int found = 0;
  for (std::sregex_iterator member(members.begin(), members.end(), declared), end; member != end; ++member) {
    const std::string name = (*member)[1];
    CAPTURE(name);
    if (name == "Monitor") continue;  // the constructor, which is `explicit`
    CHECK(symbols.find(" gradmon::Monitor::" + name + "(") != std::string::npos);
    ++found;
  }
  CHECK(found >= 15);
}

TEST_CASE("installing before building says what to build and installs nothing") {
  const TemporaryDirectory scratch;
  const std::string build = (scratch / "build").string();
  const std::string prefix = (scratch / "prefix").string();
  const std::string said = (scratch / "said").string();
  const std::string configure = GRADMON_CMAKE " -G Ninja -S " GRADMON_SOURCE_DIR " -B " + build +
                                " -DGRADMON_TESTS=OFF -DGRADMON_TORCH=OFF >" + said + " 2>&1";
  REQUIRE(std::system(configure.c_str()) == 0);
  const std::string install =
      GRADMON_CMAKE " --install " + build + " --prefix " + prefix + " >" + said + " 2>&1";
  CHECK(std::system(install.c_str()) != 0);
  CAPTURE(read_text(said));
  CHECK(read_text(said).find("--target gradmonctl gradmon-hub") != std::string::npos);
  CHECK(read_text(said).find("not built yet: " + build) != std::string::npos);
  CHECK_FALSE(fs::exists(prefix));
}

TEST_CASE("gradmonctl is installed and runs") {
  const Installation installed;
  CHECK(installed.run("prefix/bin/gradmonctl --help").find("usage: gradmonctl") == 0);
}

}  // namespace
}  // namespace gradmon
