// SPDX-License-Identifier: Apache-2.0
#include "writers/flight/flight_recorder.h"

#include <fstream>

#include "control/debian_version.h"
#include "control/log.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/sample_records.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

constexpr const char* kGradients = "grad_reduced_0-999.csv";

class Rig {
 public:
  explicit Rig(const FlightRecorder::Limits& limits = {})
      : recorder(std::make_shared<FlightRecorder>([this] { return scratch_ / "run"; }, names_, limits)) {
    Layout layout;
    layout.ops = {Op::min};
    layout.ndigits = 3;
    recorder->begin(3, layout);
  }

  void step(std::int64_t step, double norm) {
    Record row = plain_record(step, 0);
    row.target = target_;
    row.shape = shape_;
    row.dtype = DType::float32;
    row.values[static_cast<std::size_t>(Op::norm)] = norm;
    Record loss = plain_record(step, 0);
    loss.kind = Kind::scalar;
    loss.target = loss_;
    loss.mask = bit_of(Column::value);
    loss.values[static_cast<std::size_t>(Column::value)] = norm / 2;
    recorder->keep(Step{step}, {row, loss});
  }
  std::string text(const char* file) const { return read_text(directory() / file); }
  std::filesystem::path directory() const { return scratch_ / "run" / "flight"; }

 private:
  const TemporaryDirectory scratch_;
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  const std::uint32_t target_ = names_->intern("fc1.weight");
  const std::uint32_t shape_ = names_->intern("[16, 8]");
  const std::uint32_t loss_ = names_->intern("loss");

 public:
  const std::shared_ptr<FlightRecorder> recorder;
};

}  // namespace

TEST_CASE("an alert writes the steps that led up to it, each once") {
  Rig rig;
  for (std::int64_t step = 0; step < 6; ++step) rig.step(step, 1.0 + static_cast<double>(step));
  CHECK_FALSE(std::filesystem::exists(rig.directory()));
  REQUIRE(rig.recorder->on_alert(Step{5}).value().write());
  const std::string header = "vpp_stage,name,step,norm,nans,shape,dtype\n";
  const std::string before = header +
                             "0,fc1.weight,3,4.0,0,\"[16, 8]\",torch.float32\n"
                             "0,fc1.weight,4,5.0,0,\"[16, 8]\",torch.float32\n"
                             "0,fc1.weight,5,6.0,0,\"[16, 8]\",torch.float32\n";
  CHECK(rig.text(kGradients) == before);
  CHECK(rig.text("scalar_0-999.csv") == "name,step,samples,value\nloss,3,,2.0\nloss,4,,2.5\nloss,5,,3.0\n");
  CHECK_FALSE(rig.recorder->on_alert(Step{5}));  // nothing is left
  rig.step(6, 7);
  REQUIRE(rig.recorder->on_alert(Step{6}).value().write());
  CHECK(rig.text(kGradients) == before + "0,fc1.weight,6,7.0,0,\"[16, 8]\",torch.float32\n");
  CHECK(rig.recorder->counts().written == 8);
  CHECK(rig.recorder->counts().lost == 0);
}

TEST_CASE("a write that fails is done later, without a doubled row, and what made room counts as lost") {
  Rig rig;
  std::filesystem::create_directories(rig.directory().parent_path());
  write_text(rig.directory(), "in the way");
  for (std::int64_t step = 0; step < 3; ++step) rig.step(step, 1);
  const auto file = rig.recorder->on_alert(Step{2});
  REQUIRE(file);
  REQUIRE_FALSE(file->write());
  CHECK(file->write().error().find(rig.directory().string()) != std::string::npos);
  rig.step(3, 1);
  CHECK_FALSE(rig.recorder->on_alert(Step{3}));  // the earlier write includes it
  CHECK(rig.recorder->counts().lost == 2);
  std::filesystem::remove(rig.directory());
  std::filesystem::create_directories(rig.directory() / "scalar_0-999.csv");  // gradients can be written
  REQUIRE_FALSE(file->write());
  std::filesystem::remove(rig.directory() / "scalar_0-999.csv");
  REQUIRE(file->write());
  CHECK(rig.text(kGradients) ==
        "vpp_stage,name,step,norm,nans,shape,dtype\n"
        "0,fc1.weight,1,1.0,0,\"[16, 8]\",torch.float32\n"
        "0,fc1.weight,2,1.0,0,\"[16, 8]\",torch.float32\n"
        "0,fc1.weight,3,1.0,0,\"[16, 8]\",torch.float32\n");
  CHECK(rig.text("scalar_0-999.csv") == "name,step,samples,value\nloss,1,,0.5\nloss,2,,0.5\nloss,3,,0.5\n");
  CHECK(rig.recorder->counts().written == 6);
}

TEST_CASE("a recorder that has written as much as it may writes no more") {
  FlightRecorder::Limits limits;
  limits.rows_written = 5;
  Rig rig(limits);
  for (std::int64_t step = 0; step < 3; ++step) rig.step(step, 1);
  REQUIRE(rig.recorder->on_alert(Step{2})->write());
  CHECK_FALSE(rig.recorder->counts().full);
  rig.step(3, 1);
  CHECK_FALSE(rig.recorder->on_alert(Step{3}));
  CHECK(rig.recorder->counts().full);
  CHECK(rig.recorder->counts().written == 6);
}

TEST_CASE("a write reports each step, and ends where nobody waits for it any more") {
  Rig rig;
  int calls = 0;
  rig.recorder->report_progress([&] { return ++calls != 4; });
  for (std::int64_t step = 0; step < 3; ++step) rig.step(step, 1);
  const auto file = rig.recorder->on_alert(Step{2});
  REQUIRE(file);
  CHECK(file->write().error() == "flight recorder: nobody waits for the rest any more");
  CHECK(calls == 4);  // rows of one kind of one step each
  CHECK(rig.recorder->counts().written == 4);
  REQUIRE(file->write());
  CHECK(rig.recorder->counts().written == 6);
}

std::vector<std::string> logged;

TEST_CASE("the first eight writes are logged, and the last of them says so") {
  set_log_sink([](LogLevel, std::string_view line) { logged.emplace_back(line); });
  Rig rig;
  for (std::int64_t step = 0; step < 30; ++step) {
    rig.step(step, 1);
    REQUIRE(rig.recorder->on_alert(Step{step})->write());
  }
  REQUIRE(logged.size() == FlightRecorder::kMostWritesLogged);
  CHECK(logged[0].find("flight recorder: steps 0 to 0 (2 rows) written to ") == 0);
  CHECK(logged[6].find("not logged") == std::string::npos);
  CHECK(logged[7].find("; later writes are not logged") != std::string::npos);
}

TEST_CASE("a recorder that keeps nothing writes nothing") {
  Rig rig;
  rig.step(0, 1);
  rig.recorder->begin(0, {});
  rig.step(1, 1);
  CHECK_FALSE(rig.recorder->on_alert(Step{1}));
  CHECK_FALSE(std::filesystem::exists(rig.directory()));
}
