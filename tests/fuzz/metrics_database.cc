// SPDX-License-Identifier: Apache-2.0
// The sink goes on writing to a database with any bytes overwritten: rows or an error. The input is a list of
// overwritten bytes, of three bytes each: place (two), value.
#include <cstddef>
#include <fstream>

#include "tests/fuzz/promise.h"
#include "tests/support/temporary_directory.h"
#include "writers/sinks/sqlite_sink.h"

namespace {

using namespace gradmon;
using gradmon::fuzz::promise;

constexpr std::size_t kPatchBytes = 3;

const fs::path& directory() {
  static const TemporaryDirectory made(fs::is_directory("/dev/shm") ? "/dev/shm" : "/tmp");
  return made.path();
}

// "" or the error.
std::string write_step(std::int64_t step) {
  MetricsFile::Options options;
  options.directory = [] { return directory(); };
  auto names = std::make_shared<NameTable>();
  Record record;
  record.kind = Kind::grad_reduced;
  record.step = step;
  record.target = names->intern("layers.3.weight");
  record.mask = bit_of(Op::norm);
  SqliteSink sink(options, names, Rank{0});
  promise(sink.begin_revision(Layout{}).has_value(), "a revision begins");
  const auto written = sink.write_step(Step{step}, {record});
  promise(written || written.error().rows_lost == 1, "a lost row is counted");
  return written ? "" : written.error().text;
}

const std::string& valid_database() {
  static const std::string content = [] {
    for (const std::int64_t step : {1, 2, 501}) promise(write_step(step).empty(), "a step is written");
    return read_text(directory() / kMetricsFileName);
  }();
  return content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string content = valid_database();
  for (std::size_t i = 0; i + kPatchBytes <= size; i += kPatchBytes) {
    const std::size_t place = (std::size_t{data[i]} << 8 | data[i + 1]) * content.size() / 65536;
    content[place] = static_cast<char>(data[i + 2]);
  }
  for (const auto& entry : fs::directory_iterator(directory())) fs::remove_all(entry.path());
  std::ofstream(directory() / kMetricsFileName, std::ios::binary) << content;
  write_step(502);
  return 0;
}
