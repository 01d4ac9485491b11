// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/flight_recorder.h"

#include <random>

#include "control/log.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/sample_records.h"

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

Record gradient(std::int64_t step, std::uint64_t sequence, double norm, double nans = 0) {
  Record record = plain_record(step, sequence);
  record.values[static_cast<std::size_t>(Op::norm)] = norm;
  record.values[static_cast<std::size_t>(Op::nans)] = nans;
  return record;
}

Record scalar(std::int64_t step, std::uint64_t sequence, double value) {
  Record record = plain_record(step, sequence);
  record.kind = Kind::scalar;
  record.mask = bit_of(Column::value);
  record.values[static_cast<std::size_t>(Column::value)] = value;
  return record;
}

double norm_of(const Record& record) { return record.values[static_cast<std::size_t>(Op::norm)]; }

// Takes all due rows out of the ring: step and number of rows.
std::vector<std::pair<std::int64_t, std::size_t>> take_due(FlightRing& ring) {
  std::vector<std::pair<std::int64_t, std::size_t>> taken;
  while (ring.has_due()) {
    taken.emplace_back(ring.oldest().value, ring.oldest_rows().size());
    ring.remove_oldest_rows();
  }
  return taken;
}

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
  CHECK(file->write().error() == "flight recorder: write cancelled, the writer was stopped");
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

TEST_CASE("the ring keeps the last steps and no more") {
  FlightRing ring;
  ring.keep_at_most(3);
  for (std::int64_t step = 0; step < 10; ++step) ring.add(Step{step}, {gradient(step, 0, 1.5)});
  CHECK(ring.steps() == 3);
  CHECK(ring.rows() == 3);
  CHECK(ring.oldest() == Step{7});
  CHECK(ring.lost() == 0);
  ring.mark_all_due();
  ring.add(Step{10}, {gradient(10, 0, 1.5)});
  CHECK(ring.newest_due() == Step{9});
  ring.keep_at_most(1);
  CHECK(ring.oldest() == Step{10});
  ring.keep_at_most(0);
  ring.add(Step{11}, {gradient(11, 0, 1)});
  CHECK((ring.steps() == 0 && ring.rows() == 0));
}

TEST_CASE("a row keeps what it is of, and norm and nans, also where its mask names other statistics") {
  FlightRing ring;
  ring.keep_at_most(2);
  Record row = sample_record(Kind::grad_reduced, 4, 7, 9, {-2, 3, 0.5, 6, 1, 0.25, 3});
  row.mask = bit_of(Op::mean);
  row.sequence = 5;
  ring.add(Step{4}, {row});
  const RecordBatch kept = ring.oldest_rows();
  REQUIRE(kept.size() == 1);
  CHECK((kept[0].step == 4 && kept[0].target == 7 && kept[0].shape == 9 && kept[0].sequence == 5));
  CHECK((kept[0].dtype == DType::float32 && kept[0].kind == Kind::grad_reduced));
  CHECK(kept[0].mask == (bit_of(Op::norm) | bit_of(Op::nans)));
  CHECK(norm_of(kept[0]) == 6);
  CHECK(kept[0].values[static_cast<std::size_t>(Op::nans)] == 1);
}

TEST_CASE("the two parts of a step are one step, gradients first, and other kinds are left out") {
  FlightRing ring;
  ring.keep_at_most(2);
  Record weight = gradient(4, 0, 1);
  weight.kind = Kind::param_origin;
  ring.add(Step{4}, {scalar(4, 0, 2.5)});
  ring.add(Step{4}, {gradient(4, 1, 11), gradient(4, 0, 10), weight});
  ring.add(Step{5}, {weight});
  CHECK(ring.steps() == 1);
  CHECK(ring.rows() == 3);
  const RecordBatch gradients = ring.oldest_rows();
  REQUIRE(gradients.size() == 2);
  CHECK((norm_of(gradients[0]) == 10 && norm_of(gradients[1]) == 11));
  ring.remove_oldest_rows();
  const RecordBatch scalars = ring.oldest_rows();
  REQUIRE(scalars.size() == 1);
  CHECK(scalars[0].mask == bit_of(Column::value));
  CHECK(scalars[0].values[static_cast<std::size_t>(Column::value)] == 2.5);
  ring.remove_oldest_rows();
  CHECK((ring.steps() == 0 && ring.rows() == 0));
}

TEST_CASE("too many rows make room for the newest step, however large it is") {
  FlightRing ring(4);
  ring.keep_at_most(100);
  for (std::int64_t step = 0; step < 3; ++step)
    ring.add(Step{step}, {gradient(step, 0, 1), gradient(step, 1, 1)});
  CHECK(ring.oldest() == Step{1});
  ring.add(Step{3}, std::vector<Record>(9, gradient(3, 0, 1)));
  CHECK((ring.steps() == 1 && ring.rows() == 9));
}

TEST_CASE("whatever comes, the ring is what a plain list of steps would be") {
  std::mt19937 random(11);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  for (int round = 0; round < 200; ++round) {
    FlightRing ring(64);
    const int keep = 1 + draw(6);
    ring.keep_at_most(keep);
    std::deque<std::pair<std::int64_t, std::size_t>> expected;  // step and rows
    std::size_t due = 0;
    std::uint64_t lost = 0;  // rows
    for (std::int64_t step = 0; step < 60; ++step) {
      const auto rows = static_cast<std::size_t>(draw(5));
      ring.add(Step{step}, std::vector<Record>(rows, gradient(step, 0, 1)));
      if (rows > 0) expected.emplace_back(step, rows);
      while (expected.size() > static_cast<std::size_t>(keep)) {
        lost += due > 0 ? expected.front().second : 0;
        expected.pop_front();
        due -= std::min<std::size_t>(due, 1);
      }
      if (draw(10) == 0) {
        ring.mark_all_due();
        due = expected.size();
      }
      if (draw(6) != 0) continue;
      const auto taken = take_due(ring);
      const auto end = expected.begin() + static_cast<std::ptrdiff_t>(due);
      REQUIRE(taken == std::vector<std::pair<std::int64_t, std::size_t>>(expected.begin(), end));
      expected.erase(expected.begin(), end);
      due = 0;
      REQUIRE(ring.steps() == expected.size());
      REQUIRE(ring.lost() == lost);
    }
  }
}
