// SPDX-License-Identifier: Apache-2.0
// Writes records as CSV files, one per kind and range of steps (FORMAT.md). It keeps no file open
// between steps.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "writers/queue/name_table.h"
#include "writers/queue/sink.h"
#include "writers/sinks/columns.h"
#include "writers/sinks/earlier_output.h"
#include "writers/sinks/zstd_frames.h"

namespace gradmon {

// Finds the rows of a CSV file of this format (FORMAT.md), and their numbers of samples. Pure. Gets a file's
// bytes in order, in parts of any size. The columns follow from the file's own header, so the file may belong
// to another revision.
class CsvRowScanner {
 public:
  void take(std::string_view bytes);

  // The rows so far. The key of a row is its text up to the step and micro step. Without a partial row after
  // the last line end. Empty for a file without a column `step`.
  const KnownRows& rows() const { return rows_; }
  // From the column `samples`; without steps that have no number.
  const SamplesByStep& samples() const { return samples_; }
  // Bytes through the last line end outside quotes.
  std::uint64_t whole_bytes() const { return whole_bytes_; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  void end_cell();
  void end_line();

  KnownRows rows_;
  SamplesByStep samples_;
  std::uint64_t bytes_ = 0;
  std::uint64_t whole_bytes_ = 0;
  bool quoted_ = false;
  bool in_header_ = true;
  std::size_t step_column_ = kNone;
  std::size_t samples_column_ = kNone;
  std::size_t key_columns_ = 0;  // columns up to step or micro_step
  // The current line.
  std::size_t column_ = 0;
  std::string cell_;  // only if needed
  std::string key_;
  std::int64_t step_ = -1;
  std::int64_t counted_ = 0;  // samples; 0: none
};

// Appends rows to a CSV file, all or none; a name that ends in .zst makes it a file of zstd frames, one for
// each call. One thread at a time. It keeps no file open between calls, so the next call notices a directory
// that was moved, removed or unmounted.
class CsvFile {
 public:
  enum class Outcome {
    written,
    other_header,  // the existing file has other columns; nothing was written
  };

  // Finds the rows of an earlier process in `path`; none without a file. Cuts off a partial row at its end.
  // An error names the file.
  [[nodiscard]] static tl::expected<KnownRows, std::string> find_rows(const std::filesystem::path& path);

  // The numbers of samples in the file's rows. Changes no row. Empty without a file.
  [[nodiscard]] static tl::expected<SamplesByStep, std::string> find_samples(
      const std::filesystem::path& path);

  // Appends `rows` (whole lines) to `path`. A file that is missing, or has only a part of a first line, is
  // made new (0640, under the umask; its directory 0750): it appears by rename, with `header` (one whole
  // line) and the rows in it. First cuts off a partial row that an earlier process left at the end. An error
  // names the file, and means that the rows are not in it, unless it says that they may remain.
  [[nodiscard]] tl::expected<Outcome, std::string> append(const std::filesystem::path& path,
                                                          std::string_view header, std::string_view rows);

 private:
  using Bytes = std::array<std::string_view, 2>;  // one after the other

  // The bytes to write; valid until the next call, and as long as the texts.
  [[nodiscard]] tl::expected<Bytes, std::string> encoded(const std::filesystem::path& path,
                                                         std::string_view header, std::string_view rows);
  [[nodiscard]] tl::expected<Outcome, std::string> create(const std::filesystem::path& path,
                                                          std::string_view header, std::string_view rows);
  void remember(ino_t inode, off_t size, std::string_view header);

  // The file after the last call. If it is unchanged, it need not be read again.
  ino_t inode_ = 0;
  off_t size_ = 0;
  std::string header_;
  FrameCompressor compressor_;
};

class CsvSink : public Sink {
 public:
  // Writes into the directory that `directory` returns, and makes it (0750) whenever it is missing.
  // begin_revision() calls `directory`. `names` resolves the ids in the records. With Resume::yes, skips rows
  // that an earlier process has written.
  CsvSink(std::function<std::filesystem::path()> directory, std::shared_ptr<const NameTable> names,
          Resume resume = Resume::no);

  // The numbers of samples in the files of a directory: for all steps from `from` on, and for one step before
  // it, if the newest 1,000 files have one. Changes no file. An error names the file.
  [[nodiscard]] static tl::expected<SamplesByStep, std::string> find_samples(
      const std::filesystem::path& directory, std::int64_t from);

  const char* name() const override { return "csv"; }
  void report_parts(OnPart on_part) override { on_part_ = std::move(on_part); }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step, const RecordBatch& records) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override { return {}; }

 private:
  // The file of one kind for the current range of steps.
  struct Output {
    std::vector<RowColumn> columns;
    std::string header;
    std::size_t key_columns = 0;   // columns that identify a row: up to step or micro_step
    std::int64_t first_step = -1;  // of the file at `path`
    std::filesystem::path path;
    CsvFile file;
    std::vector<KnownRows> known;  // of the files for this range of steps
  };

  // A file of an earlier process, by its name.
  struct EarlierFile {
    std::int64_t first_step;
    std::int64_t last_step;
    std::filesystem::path path;
  };
  using EarlierFiles = std::array<std::vector<EarlierFile>, kKinds>;  // by Kind
  // nullopt without a directory.
  static tl::expected<std::optional<EarlierFiles>, std::string> files_in(
      const std::filesystem::path& directory);

  // Text that grows by rows, without a check of the room for each number.
  class RowText {
   public:
    void clear() { end_ = memory_.get(); }
    std::string_view text() const { return {memory_.get(), size()}; }
    bool empty() const { return size() == 0; }

    // The end of the text, with room for `bytes` more. Valid until the next call.
    char* room(std::size_t bytes) {
      if (bytes > capacity_ - size()) grow(bytes);
      return end_;
    }
    // Adds the bytes written up to `end`, within the room, to the text.
    void extend_to(char* end) { end_ = end; }

   private:
    std::size_t size() const { return static_cast<std::size_t>(end_ - memory_.get()); }
    void grow(std::size_t bytes) {
      const std::size_t used = size();
      const std::size_t capacity = std::max(2 * capacity_, used + bytes);
      std::unique_ptr<char[]> larger(new char[capacity]);
      std::copy(memory_.get(), end_, larger.get());
      memory_ = std::move(larger);
      capacity_ = capacity;
      end_ = memory_.get() + used;
    }

    std::unique_ptr<char[]> memory_;
    std::size_t capacity_ = 0;
    char* end_ = nullptr;
  };

  // A name or a shape as a cell.
  struct Text {
    int vpp_stage;
    std::string cell;  // "\"[16, 8]\""
  };

  tl::expected<void, std::string> write_kind(Kind kind, Step step, RecordBatch::Iterator begin,
                                             RecordBatch::Iterator end);
  // Sets the path, and finds the rows that earlier processes wrote. The next call after an error retries.
  tl::expected<void, std::string> open(Output& output, Kind kind, std::int64_t first_step);
  // Finds the rows of all files that may have steps of the file at output.path: an earlier process may have
  // had other columns, or another number of steps in a file.
  tl::expected<void, std::string> find_known_rows(Output& output, Kind kind, std::int64_t first_step);
  // Lists the directory once: it may have a file for each step.
  tl::expected<void, std::string> list_earlier_files();
  // Appends the collected rows to the file after make_path(kind, first_step, "") that has this revision's
  // columns, or is missing.
  tl::expected<CsvFile::Outcome, std::string> append_beside(Output& output, Kind kind,
                                                            std::int64_t first_step);
  std::filesystem::path make_path(Kind kind, std::int64_t first_step, const std::string& suffix) const;
  void collect_rows(const Output& output, RecordBatch::Iterator begin, RecordBatch::Iterator end);
  void append_row(const Record& record, const Output& output);
  char* write_cell(char* at, const Record& record, const RowColumn& column, const Text& target,
                   const Text& shape) const;
  const Text& cell_text(std::uint32_t id);

  // Constant after construction.
  const std::function<std::filesystem::path()> directory_of_run_;
  const std::shared_ptr<const NameTable> names_;
  const Resume resume_;

  // Writer thread only.
  OnPart on_part_;  // null: parts are not reported
  std::filesystem::path directory_;
  Layout layout_;
  std::array<Output, kKinds> outputs_;
  std::optional<EarlierFiles> earlier_files_;  // in directory_; not set: not looked for yet
  RowText rows_;                               // one step of one kind, without known rows
  std::vector<Text> texts_;                    // by id
};

}  // namespace gradmon
