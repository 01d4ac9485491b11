// SPDX-License-Identifier: Apache-2.0
#include "hooks/arrays/dl_array.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

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
