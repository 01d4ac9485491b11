// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/foreign_array.h"

#include <sys/mman.h>
#include <unistd.h>

#include <limits>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// Pages of which one is taken away.
class Pages {
 public:
  explicit Pages(std::size_t count)
      : bytes_(count * kPage),
        begin_(static_cast<unsigned char*>(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { ::munmap(begin_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  MemoryRange range() const { return {begin_, bytes_}; }
  unsigned char* page(std::size_t i) const { return begin_ + i * kPage; }

 private:
  std::size_t bytes_;
  unsigned char* begin_;
};

using Numbers = std::vector<std::int64_t>;

// A description of an array of float32 on the CPU, and the numbers that it points to.
struct Described {
  float values[24] = {};
  Numbers shape, strides;
  DlTensor tensor;

  explicit Described(Numbers of_shape, Numbers of_strides = {})
      : shape(std::move(of_shape)), strides(std::move(of_strides)) {
    tensor.data = values;
    tensor.device.type = 1;
    tensor.dtype = {2, 32, 1};
    tensor.ndim = static_cast<std::int32_t>(shape.size());
    tensor.shape = shape.data();
    tensor.strides = strides.empty() ? nullptr : strides.data();
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
};

TEST_CASE("the memory of an array reaches from its lowest to its highest element") {
  const float values[24] = {};
  const auto* bytes = reinterpret_cast<const unsigned char*>(values);
  ForeignArray array{values + 12, ElementType::float32, {2, 3}, {-24, 8}};
  auto memory = memory_of(array);
  REQUIRE(memory);
  CHECK(memory->begin == bytes + 48 - 24);
  CHECK(memory->bytes == 24 + 16 + 4);

  array.strides = {0, 0};
  memory = memory_of(array);
  REQUIRE(memory);
  CHECK(memory->begin == bytes + 48);
  CHECK(memory->bytes == 4);

  array.sizes = array.strides = {};
  REQUIRE(memory_of(array));
  CHECK(memory_of(array)->bytes == 4);
}

TEST_CASE("an array without elements needs no memory") {
  const ForeignArray array{nullptr, ElementType::float64, {3, 0}, {kMost, -8}};
  REQUIRE(memory_of(array));
  CHECK(memory_of(array)->bytes == 0);
}

TEST_CASE("sizes and strides that no memory has are refused") {
  const double value = 0;
  const auto refused = [&](std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
    return !memory_of({&value, ElementType::float64, std::move(sizes), std::move(strides)});
  };
  CHECK(refused({-1}, {8}));
  CHECK(refused({2}, {}));
  CHECK(refused({kMost}, {8}));
  CHECK(refused({kMost, kMost}, {0, 0}));
  CHECK(refused({2, 2}, {kMost, kMost}));
  CHECK(refused({2}, {std::numeric_limits<std::int64_t>::min()}));
  CHECK(refused({3}, {std::numeric_limits<std::int64_t>::min() + 1}));
  CHECK(refused({std::int64_t{1} << 29U}, {0}));  // would be read for minutes
  CHECK(refused(std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 8)));
  CHECK(!memory_of({nullptr, ElementType::float64, {1}, {8}}));
}

TEST_CASE("types are found by name") {
  CHECK(element_type_of("bfloat16") == ElementType::bfloat16);
  CHECK(element_type_of("float8_e5m2fnuz") == ElementType::float8_e5m2fnuz);
  CHECK(!element_type_of("float128"));
  CHECK(!element_type_of(""));
}

TEST_CASE("memory of a program is readable, also read-only and large") {
  const std::vector<double> numbers(100'000);
  CHECK(is_readable({reinterpret_cast<const unsigned char*>(numbers.data()), numbers.size() * 8}));
  const char* constant = "constant";
  CHECK(is_readable({reinterpret_cast<const unsigned char*>(constant), 9}));
  const Pages large(16'000);
  CHECK(is_readable(large.range()));
  CHECK(is_readable({nullptr, 0}));
}

TEST_CASE("a page that is unmapped or protected is found wherever it is") {
  for (const std::size_t missing : {0U, 7U, 15U}) {
    const Pages pages(16);
    REQUIRE(is_readable(pages.range()));
    ::mprotect(pages.page(missing), kPage, PROT_NONE);
    CHECK(!is_readable(pages.range()));
    ::munmap(pages.page(missing), kPage);
    CHECK(!is_readable(pages.range()));
  }
  const Pages large(16'000);
  ::munmap(large.page(15'001), kPage);
  CHECK(!is_readable(large.range()));
}

TEST_CASE("addresses that no memory has are not readable") {
  const auto range = [](std::uintptr_t at, std::size_t bytes) {
    return MemoryRange{reinterpret_cast<const unsigned char*>(at), bytes};
  };
  CHECK(!is_readable(range(0, 4)));
  CHECK(!is_readable(range(8, 4)));
  CHECK(!is_readable(range(0xdeadbeefdead0000, 4)));
  CHECK(!is_readable(range(UINTPTR_MAX - 2, 3)));
  CHECK(!is_readable(range(UINTPTR_MAX - 2, 8)));
  const int here = 0;
  CHECK(!is_readable(range(reinterpret_cast<std::uintptr_t>(&here), SIZE_MAX / 2)));
}

TEST_CASE("formats of numbers are read, in native and in standard sizes") {
  struct Case {
    const char* format;
    std::size_t bytes;
    ElementType type;
  };
  const Case cases[] = {
      {"?", 1, ElementType::boolean}, {"b", 1, ElementType::int8},       {"B", 1, ElementType::uint8},
      {"h", 2, ElementType::int16},   {"<H", 2, ElementType::uint16},    {"=i", 4, ElementType::int32},
      {"I", 4, ElementType::uint32},  {"l", 8, ElementType::int64},      {"<l", 4, ElementType::int32},
      {"=L", 4, ElementType::uint32}, {"q", 8, ElementType::int64},      {"@Q", 8, ElementType::uint64},
      {"n", 8, ElementType::int64},   {"e", 2, ElementType::float16},    {"<f", 4, ElementType::float32},
      {"d", 8, ElementType::float64}, {"Zf", 8, ElementType::complex64}, {"<Zd", 16, ElementType::complex128},
      {">b", 1, ElementType::int8},  // one byte has no order
  };
  for (const Case& one : cases) {
    CAPTURE(one.format);
    CHECK(type_of_format(one.format, one.bytes) == one.type);
  }
}

TEST_CASE("what is no number, or has another byte order or size, is refused with the format") {
  for (const char* format : {"", "g", "Zg", "O", "3s", "T{<f:x:}", "c", "P", "ff", "<", "Z", "=n", "w"}) {
    CAPTURE(format);
    const auto type = type_of_format(format, 4);
    REQUIRE(!type);
    CHECK(type.error().find('"' + std::string(format) + '"') != std::string::npos);
  }
  CHECK(type_of_format(">f", 4).error() == "format \">f\" has the other byte order");
  CHECK(type_of_format("!d", 8).error() == "format \"!d\" has the other byte order");
  CHECK(type_of_format("f", 8).error() == "elements of 8 bytes, but format \"f\"");
}

TEST_CASE("sizes, strides and the byte offset are read") {
  Described given({2, 3}, {-3, 2});
  given.tensor.byte_offset = 48;
  const auto array = array_of(given.tensor);
  REQUIRE(array);
  CHECK(array->data == given.values + 12);
  CHECK(array->type == ElementType::float32);
  CHECK(array->sizes == Numbers{2, 3});
  CHECK(array->strides == Numbers{-12, 8});
}

TEST_CASE("without strides an array is row-major, and strides of sizes below 2 do not count") {
  Described contiguous({2, 3, 4});
  CHECK(array_of(contiguous.tensor)->strides == Numbers{48, 16, 4});
  Described single({1, 3}, {std::numeric_limits<std::int64_t>::max(), 1});
  CHECK(array_of(single.tensor)->strides == Numbers{0, 4});
  Described scalar({});
  CHECK(array_of(scalar.tensor)->sizes.empty());
}

TEST_CASE("every type of a number is known, and no other") {
  Described given({2});
  const auto type = [&](std::uint8_t code, std::uint8_t bits, std::uint16_t lanes = 1) {
    given.tensor.dtype = {code, bits, lanes};
    return array_of(given.tensor);
  };
  CHECK(type(0, 16)->type == ElementType::int16);
  CHECK(type(1, 64)->type == ElementType::uint64);
  CHECK(type(2, 16)->type == ElementType::float16);
  CHECK(type(4, 16)->type == ElementType::bfloat16);
  CHECK(type(5, 128)->type == ElementType::complex128);
  CHECK(type(6, 8)->type == ElementType::boolean);
  CHECK(type(12, 8)->type == ElementType::float8_e5m2);
  CHECK(type(2, 32, 4).error() == "elements of DLPack's type 2, 32 bits, 4 lanes");
  CHECK(!type(2, 32, 0));
  CHECK(!type(3, 64));  // an opaque handle
  CHECK(!type(2, 80));
  CHECK(!type(255, 255));
}

TEST_CASE("a description that no array has is refused with its reason") {
  Described given({2, 3}, {3, 1});
  const auto refusal = [&](auto&& change) {
    Described changed({2, 3}, {3, 1});
    change(changed);
    const auto array = array_of(changed.tensor);
    return array ? std::string() : array.error();
  };
  CHECK(refusal([](Described& d) { d.tensor.device.type = 2; }) ==
        "its memory is on a device of DLPack's type 2");
  CHECK(refusal([](Described& d) { d.tensor.ndim = -1; }) == "-1 dimensions, expected 0 to 64");
  CHECK(refusal([](Described& d) { d.tensor.ndim = 65; }) == "65 dimensions, expected 0 to 64");
  CHECK(refusal([](Described& d) { d.tensor.shape = nullptr; }) == "it has no shape");
  CHECK(refusal([](Described& d) { d.shape[1] = -3; }) == "a size of -3, expected 0 or more");
  CHECK(refusal([](Described& d) { d.tensor.data = nullptr; }) == "its data are at address 0");
  CHECK(!refusal([](Described& d) { d.tensor.byte_offset = UINT64_MAX; }).empty());
  CHECK(!refusal([](Described& d) { d.strides[0] = INT64_MAX; }).empty());
  CHECK(!refusal([](Described& d) { d.strides[0] = INT64_MIN; }).empty());
  CHECK(!refusal([](Described& d) { d.shape = {INT64_MAX, INT64_MAX}; }).empty());
  CHECK(!refusal([](Described& d) {
           d.shape[0] = d.shape[1] = INT64_MAX;
           d.tensor.strides = nullptr;
         }).empty());
}

TEST_CASE("a capsule may point anywhere") {
  Described given({2, 3});
  DlManagedTensor managed;
  managed.tensor = given.tensor;
  CHECK(array_behind(&managed, DlVersion::before_1));
  CHECK(!array_behind(nullptr, DlVersion::before_1));
  CHECK(!array_behind(reinterpret_cast<const void*>(std::uintptr_t{0x1000}), DlVersion::before_1));
  CHECK(!array_behind(reinterpret_cast<const void*>(~std::uintptr_t{15}), DlVersion::since_1));
  managed.tensor.shape = reinterpret_cast<std::int64_t*>(std::uintptr_t{0x1000});
  CHECK(array_behind(&managed, DlVersion::before_1).error() ==
        "its shape or its strides are in memory that cannot be read");
  managed.tensor.shape = given.shape.data();
  managed.tensor.strides = reinterpret_cast<std::int64_t*>(std::uintptr_t{0x1000});
  CHECK(!array_behind(&managed, DlVersion::before_1));
}

TEST_CASE("of DLPack's versions with a number, 1 is read") {
  Described given({2, 3});
  DlManagedTensorVersioned managed;
  managed.major = 1;
  managed.minor = 3;
  managed.tensor = given.tensor;
  REQUIRE(array_behind(&managed, DlVersion::since_1));
  CHECK(array_behind(&managed, DlVersion::since_1)->sizes == Numbers{2, 3});
  managed.major = 2;
  CHECK(array_behind(&managed, DlVersion::since_1).error() == "DLPack 2.3, expected 1.x");
}

}  // namespace
}  // namespace gradmon
