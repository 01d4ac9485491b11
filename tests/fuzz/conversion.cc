// SPDX-License-Identifier: Apache-2.0
// Any bytes, cut in two at the first NUL, are the CSV files of two starts of a rank. csv2tb and csv2db
// convert the same rows of them, and what they make is sound.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/fuzz/promise.h"
#include "tests/support/temporary_directory.h"
#include "tools/convert/convert_to_database.h"
#include "tools/convert/convert_to_tensorboard.h"
#include "writers/sqlite/sqlite_database.h"

namespace {

using gradmon::fuzz::promise;
namespace fs = std::filesystem;

std::int64_t integer_of(const fs::path& file, const std::string& query) {
  auto database = gradmon::SqliteDatabase::open(file, gradmon::SqliteDatabase::Access::read_only);
  promise(database.has_value(), "the database can be opened");
  const auto value = database->integer(query);
  promise(value.has_value(), "the database can be read");
  return *value;
}

void write_inputs(const fs::path& place, const std::string& text) {
  const std::size_t cut = text.find('\0');
  fs::create_directories(place / "first");
  fs::create_directories(place / "second");
  gradmon::write_text(place / "first/actv_0-99.csv", text.substr(0, cut));
  if (cut != std::string::npos) gradmon::write_text(place / "second/actv_0-99.csv", text.substr(cut + 1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const gradmon::TemporaryDirectory scratch;
  const fs::path place = scratch / "run";
  fs::remove_all(place);
  write_inputs(place, {reinterpret_cast<const char*>(data), size});
  gradmon::Problems problems;
  const std::vector<gradmon::RankInput> ranks = {{3, {place / "first", place / "second"}}};
  const gradmon::ConversionTasks tasks = gradmon::conversion_tasks(ranks, {}, problems);

  gradmon::ConversionMeter to_curves, to_database;
  promise(gradmon::convert_to_tensorboard(tasks, place / "curves", gradmon::TagForm::gradmon, 1, to_curves,
                                          problems)
              .has_value(),
          "csv2tb converts any input");
  auto database = gradmon::NewDatabase::make(place / "made.db", 500);
  promise(database.has_value(), "the database is made");
  promise(gradmon::convert_to_database(tasks, *database, 1, to_database, problems).has_value(),
          "csv2db converts any input");
  promise(database->finish().has_value(), "the database is committed");
  promise(to_curves.rows == to_database.rows, "both convert the same rows");
  promise(integer_of(place / "made.db",
                     "SELECT count(*) FROM pragma_integrity_check WHERE "
                     "integrity_check <> 'ok'") == 0,
          "the database is sound");
  const bool any = integer_of(place / "made.db", "SELECT count(*) FROM v_metrics") > 0;
  promise(any == (to_database.rows > 0), "rows that were converted are in the database");
  return 0;
}
