// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/record_batch.h"

#include <random>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr auto kNorm = static_cast<std::size_t>(Op::norm);

Record record_of(Kind kind, std::uint64_t sequence, ValueMask mask) {
  Record record;
  record.kind = kind;
  record.target = static_cast<std::uint32_t>(100 + sequence);
  record.sequence = sequence;
  record.micro_step = static_cast<std::int32_t>(sequence % 3);
  record.read_at = static_cast<std::int64_t>(7 * sequence);
  record.readers = kForRows | kForFlight;
  record.dtype = DType::bfloat16;
  record.mask = mask;
  record.shape = 5;
  record.step = 12;
  record.revision = 3;
  for (std::size_t i = 0; i < kValues; ++i)
    record.values[i] = static_cast<double>(sequence) + 0.1 * static_cast<double>(i);
  return record;
}

// As it comes out: a value without its bit is 0, except of a reduced gradient.
void check_same(const Record& found, const Record& put) {
  CHECK(std::tie(found.kind, found.target, found.sequence, found.micro_step, found.read_at, found.readers) ==
        std::tie(put.kind, put.target, put.sequence, put.micro_step, put.read_at, put.readers));
  CHECK(std::tie(found.dtype, found.mask, found.shape, found.step, found.revision) ==
        std::tie(put.dtype, put.mask, put.shape, put.step, put.revision));
  for (std::size_t i = 0; i < kValues; ++i) {
    const bool kept = (put.mask >> i & 1U) != 0 || (put.kind == Kind::grad_reduced && i < kOps) ||
                      ((put.mask & kLate) != 0 && i == 0);
    CHECK(found.values[i] == (kept ? put.values[i] : 0));
  }
}

// Adds a number to what it completes; a record whose number is odd has no values.
class LateNumbers : public LateValues {
 public:
  bool ready() noexcept override { return true; }
  bool complete(Record& record) noexcept override {
    const auto number = static_cast<int>(record.values[0]);
    record.mask = static_cast<ValueMask>(record.mask & ~kLate);
    record.values.fill(number);
    return number % 2 == 0;
  }
};

}  // namespace

TEST_CASE("records come out of a batch as they went in, with the values that they have") {
  std::mt19937 random(5);
  std::vector<Record> records;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const auto kind = static_cast<Kind>(random() % kRecordKinds);
    records.push_back(record_of(kind, i, static_cast<ValueMask>(random() % (1U << kValues))));
  }
  const RecordBatch batch = records;
  REQUIRE(batch.size() == records.size());
  std::size_t row = 0;
  for (const Record& found : batch) check_same(found, records[row++]);
}

TEST_CASE("a batch is sorted by kind and sequence and gives each kind once") {
  RecordBatch batch;
  for (const std::uint64_t sequence : {3U, 1U, 2U}) {
    batch.push_back(record_of(Kind::param_origin, sequence, bit_of(Op::norm)));
    batch.push_back(record_of(Kind::actv, sequence, bit_of(Op::max)));
  }
  batch.sort();
  std::vector<std::pair<Kind, std::vector<std::uint64_t>>> found;
  batch.each_kind([&](Kind kind, RecordBatch::Iterator begin, RecordBatch::Iterator end) {
    found.push_back({kind, {}});
    for (; begin != end; ++begin) {
      check_same(*begin, record_of(kind, begin->sequence, begin->mask));
      found.back().second.push_back(begin->sequence);
    }
    return true;
  });
  const std::vector<std::uint64_t> order{1, 2, 3};
  CHECK(found == std::vector<std::pair<Kind, std::vector<std::uint64_t>>>{{Kind::actv, order},
                                                                          {Kind::param_origin, order}});
}

TEST_CASE("late records get their values within the batch, and those without values go") {
  RecordBatch batch;
  for (std::uint64_t i = 0; i < 4; ++i) {
    Record record = record_of(i < 2 ? Kind::grad_reduced : Kind::actv, i,
                              static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Op::nans) | kLate));
    record.values[0] = static_cast<double>(i);
    batch.push_back(record);
    check_same(batch[2 * i], record);
    batch.push_back(record_of(Kind::actv, 10 + i, bit_of(Op::max)));
  }
  LateNumbers late;
  complete_records(batch, &late);
  REQUIRE(batch.size() == 6);
  CHECK(batch[0].values[kNorm] == 0);
  CHECK(batch[0].mask == (bit_of(Op::norm) | bit_of(Op::nans)));
  CHECK(batch[3].sequence == 2);
  CHECK(batch[3].values[kNorm] == 2);
  for (const std::size_t other : {1U, 2U, 4U, 5U})
    check_same(batch[other], record_of(Kind::actv, batch[other].sequence, bit_of(Op::max)));
}

TEST_CASE("a change may give a record more values or fewer") {
  RecordBatch batch;
  for (std::uint64_t i = 0; i < 3; ++i) batch.push_back(record_of(Kind::scalar, i, bit_of(Op::max)));
  const auto give = [&](std::uint64_t sequence, ValueMask mask) {
    batch.change([](Kind, ValueMask) { return true; },
                 [&](Record& record) {
                   if (record.sequence == sequence) record = record_of(Kind::scalar, sequence, mask);
                   return true;
                 });
  };
  const ValueMask all = (1U << kValues) - 1;
  give(0, all);
  give(1, 0);
  check_same(batch[0], record_of(Kind::scalar, 0, all));
  check_same(batch[1], record_of(Kind::scalar, 1, 0));
  check_same(batch[2], record_of(Kind::scalar, 2, bit_of(Op::max)));
}

}  // namespace gradmon
