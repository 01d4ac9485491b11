// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace torch::dynamo::autograd {
class CompiledNodeArgs;
}

namespace gradmon {

// A hook of autograd that compiled autograd (torch 2.x) passes over, where torch's own
// base class throws through the program's backward. In one of its two forms it overrides
// that base's function: constant since 2.7, not there in 1.13.
template <typename Hook>
class PassedOverWhenCompiled : public Hook {
 public:
  virtual void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) {}
  virtual void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const {}
};

}  // namespace gradmon
