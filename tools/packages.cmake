# SPDX-License-Identifier: Apache-2.0
# The libraries beside torch.
find_package(PkgConfig REQUIRED)
find_package(spdlog REQUIRED)
find_package(simdjson REQUIRED)
find_package(Protobuf REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tl-expected QUIET)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_path(CONCURRENTQUEUE_INCLUDE concurrentqueue.h PATH_SUFFIXES concurrentqueue concurrentqueue/moodycamel REQUIRED)
