// SPDX-License-Identifier: Apache-2.0
// Compressed CSV files, beside the plain files of the same rows.
#include "writers/sinks/zstd_frames.h"

#include <fcntl.h>

#include <fstream>
#include <memory>

#include "control/files/descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/sample_records.h"
#include "writers/sinks/csv_sink.h"

using namespace gradmon;

namespace {

const std::string kFile = "grad_reduced_0-99.csv";

Layout layout(bool compress, std::vector<Op> ops = {Op::norm}, std::uint64_t revision = 1) {
  Layout made;
  made.revision = Revision{revision};
  made.ops = std::move(ops);
  made.step_count_per_record = 100;
  made.compress = compress;
  return made;
}

// Writes steps as a job that begins now; a job before it may have written some of their rows.
tl::expected<void, SinkError> write_steps(const fs::path& directory, const Layout& layout, std::int64_t first,
                                          std::int64_t last) {
  auto names = std::make_shared<NameTable>();
  std::vector<std::uint32_t> targets;
  for (int i = 0; i < 200; ++i) targets.push_back(names->intern("layers." + std::to_string(i) + ",\"w\""));
  CsvSink sink([directory] { return directory; }, names, Resume::yes);
  if (auto begun = sink.begin_revision(layout); !begun) return begun;
  for (std::int64_t step = first; step <= last; ++step) {
    std::vector<Record> records;
    for (const std::uint32_t target : targets) {
      Record& record = records.emplace_back(plain_record(step, records.size()));
      record.target = target;
      record.values[static_cast<std::size_t>(Op::norm)] = 0.5 * static_cast<double>(step + target);
    }
    if (auto written = sink.write_step(Step{step}, records); !written) return written;
  }
  return {};
}

struct Frames {
  std::string text;
  off_t whole_bytes = 0;
};

tl::expected<Frames, std::string> frames_of(const fs::path& file) {
  Frames found;
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const auto end = read_frames(opened.get(), [&](std::string_view text) { found.text += text; });
  if (!end) return tl::unexpected(end.error());
  found.whole_bytes = *end;
  return found;
}

void write_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// The same rows in a plain file, through step `last`.
std::string plain_text(std::int64_t last) {
  const TemporaryDirectory scratch;
  REQUIRE(write_steps(scratch.path(), layout(false), 0, last));
  return read_text(scratch / kFile);
}

}  // namespace

TEST_CASE("a compressed file has the text of the plain one, in a fraction of the bytes, also of two jobs") {
  const TemporaryDirectory scratch;
  REQUIRE(write_steps(scratch.path(), layout(true), 0, 3));
  REQUIRE(write_steps(scratch.path(), layout(true), 2, 9));  // steps 2 and 3 are there already
  CHECK(files_in(scratch.path()) == std::set<std::string>{kFile + ".zst"});
  const auto found = frames_of(scratch / (kFile + ".zst"));
  REQUIRE(found);
  CHECK(found->text == plain_text(9));
  CHECK(fs::file_size(scratch / (kFile + ".zst")) * 6 < found->text.size());
}

TEST_CASE("after a kill anywhere in a frame the next job cuts it off and writes its rows") {
  const TemporaryDirectory scratch;
  const fs::path file = scratch / (kFile + ".zst");
  REQUIRE(write_steps(scratch.path(), layout(true), 0, 1));
  const auto two = static_cast<std::size_t>(fs::file_size(file));
  REQUIRE(write_steps(scratch.path(), layout(true), 2, 2));
  const std::string three = read_text(file);
  const std::string wanted = plain_text(3), through_1 = plain_text(1);
  for (std::size_t cut = two; cut < three.size(); cut += 1 + (three.size() - two) / 50) {
    for (const std::size_t zeros : {0U, 500U}) {  // as a file system may leave them
      INFO(cut << ", " << zeros);
      write_bytes(file, three.substr(0, cut) + std::string(zeros, '\0'));
      const auto torn = frames_of(file);
      REQUIRE(torn);
      CHECK((torn->text == through_1 && torn->whole_bytes == static_cast<off_t>(two)));
      REQUIRE(write_steps(scratch.path(), layout(true), 0, 3));
      CHECK(frames_of(file)->text == wanted);
    }
  }
}

TEST_CASE("a file that is damaged before its end is an error that names the place, and stays as it is") {
  const TemporaryDirectory scratch;
  const fs::path file = scratch / (kFile + ".zst");
  REQUIRE(write_steps(scratch.path(), layout(true), 0, 4));
  std::string bytes = read_text(file);
  bytes[bytes.size() / 2] ^= 4;
  write_bytes(file, bytes);
  const auto written = write_steps(scratch.path(), layout(true), 5, 5);
  REQUIRE_FALSE(written);
  CHECK(written.error().text.find("cannot read " + file.string() + ": byte ") != std::string::npos);
  CHECK(written.error().rows_lost == 200);
  CHECK(read_text(file) == bytes);
}

TEST_CASE("a revision with other columns begins a compressed file of its own") {
  const TemporaryDirectory scratch;
  REQUIRE(write_steps(scratch.path(), layout(true), 0, 0));
  REQUIRE(write_steps(scratch.path(), layout(true, {Op::norm, Op::max}, 7), 1, 1));
  CHECK(files_in(scratch.path()) ==
        std::set<std::string>{"grad_reduced_0-99.csv.zst", "grad_reduced_0-99.r7.csv.zst"});
  CHECK(frames_of(scratch / "grad_reduced_0-99.r7.csv.zst")->text.find("name,step,norm,max,") !=
        std::string::npos);
}
