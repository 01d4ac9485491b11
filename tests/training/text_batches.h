// SPDX-License-Identifier: Apache-2.0
// An endless sequence of training batches from the bytes of a text file.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gradmon {

// Two int64 tensors of batch × context: bytes, and the bytes that follow them.
struct TextBatch {
  at::Tensor inputs;
  at::Tensor targets;
};

// A text that Debian installs.
std::string default_text();

// One thread. The batches depend only on text, seed and rank.
class TextBatches {
 public:
  struct Shape {
    std::int64_t batch;
    std::int64_t context;
  };

  // Throws std::runtime_error if the file cannot be read or is not longer than
  // one context.
  TextBatches(const std::string& path, Shape shape, std::uint64_t seed, int rank);

  TextBatch next();
  std::vector<TextBatch> next(std::int64_t count);

 private:
  const Shape shape_;
  std::string text_;
  std::mt19937_64 random_;
};

}  // namespace gradmon
