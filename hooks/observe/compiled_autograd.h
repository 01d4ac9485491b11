// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace torch::dynamo::autograd {
class CompiledNodeArgs;
}

namespace gradmon {

// An autograd hook that compiled autograd (torch 2.x) ignores. Without the override, torch's base class
// throws in the program's backward. The function of the base class is const since 2.7, non-const in
// earlier 2.x and missing in 1.13, so at most one of the two forms is an override.
template <typename Hook>
class IgnoredByCompiledAutograd : public Hook {
 public:
  virtual void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) {}
  virtual void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const {}
};

}  // namespace gradmon
