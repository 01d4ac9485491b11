// SPDX-License-Identifier: Apache-2.0
// store-server HOST: serves a TCPStore on HOST, as a launcher of PyTorch does, until
// its standard input ends. Prints the port in one line.
#include <chrono>
#include <iostream>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/support/refuse_libuv.h"

int main(int argc, char** argv) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(10);
  gradmon::refuse_libuv(options, 0);
  const c10d::TCPStore store(argc > 1 ? argv[1] : "127.0.0.1", options);
  std::cout << store.getPort() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}
