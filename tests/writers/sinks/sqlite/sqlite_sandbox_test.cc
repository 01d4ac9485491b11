// SPDX-License-Identifier: Apache-2.0
// The sink where a sandbox refuses the calls that copy memory.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <iterator>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/sinks/sqlite/metrics_database.h"
#include "writers/sqlite/unmapped_vfs.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
namespace fs = std::filesystem;

namespace {

constexpr const char* kInside = "inside a sandbox";
constexpr const char* kDirectory = "GRADMON_TEST_SANDBOX";

// From now on process_vm_readv() and process_vm_writev() fail with EPERM, also after exec.
bool refuse_copies() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::string write(SqliteSink& sink, NameTable& names, std::int64_t step) {
  const auto written = sink.write_step(Step{step}, norm_records(names, step, 10));
  return written ? "" : written.error().text;
}

bool maps(const std::string& file) {
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) {
    if (line.find(file) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("where memory cannot be copied the sink uses a rollback journal, and maps no file") {
  const TemporaryDirectory scratch;
  const fs::path path = scratch / kMetricsFileName;
  auto names = std::make_shared<NameTable>();
  {
    SqliteSink sink(file_options(scratch.path()), names, Rank{3});
    REQUIRE(sink.begin_revision(layout_with({Op::norm})));
    REQUIRE(write(sink, *names, 1) == "");
    REQUIRE(fs::exists(path.string() + "-wal"));
  }
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv(kDirectory, scratch.path().c_str(), 1);
    if (refuse_copies()) ::execl("/proc/self/exe", "sqlite_test", kInside, nullptr);
    ::_exit(100);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(query_rows(path, "SELECT DISTINCT step FROM v_metrics ORDER BY step") == TextRows{"1", "2", "3"});
  CHECK(integrity_error(path) == "");
}

// Run by the test above, in a process of its own.
TEST_CASE("inside a sandbox", "[.]") {
  REQUIRE(unmapped_vfs() == nullptr);
  const fs::path directory = ::getenv(kDirectory);
  auto names = std::make_shared<NameTable>();
  SqliteSink sink(file_options(directory), names, Rank{3});
  REQUIRE(sink.begin_revision(layout_with({Op::norm})));
  CHECK(write(sink, *names, 2) == "");  // the file has a write-ahead log
  CHECK(!maps(kMetricsFileName));
  CHECK(files_in(directory) ==
        std::set<std::string>{kMetricsFileName, std::string(kMetricsFileName) + "-journal"});
  CHECK(query_rows(directory / kMetricsFileName, "SELECT DISTINCT step FROM v_metrics ORDER BY step") ==
        TextRows{"1", "2"});  // a reader meanwhile
  CHECK(write(sink, *names, 3) == "");
  CHECK(!maps(kMetricsFileName));
}
