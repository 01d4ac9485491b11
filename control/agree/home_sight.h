// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/message.h"

namespace gradmon {

// In which homes of the register a rank has seen rank 0's nonce, and which it is
// to look into next: the directory at once; the store where the directory does
// not show it, or the job cannot agree on a home; each again every second, for
// absence is never a proof. Pure; one thread.
class HomeSight {
 public:
  // Welcome has come.
  void begin(Ticks now) { begun_ = now; }
  // The homes to look into now; each look is answered by on_proof.
  std::vector<Home> due(Ticks now, Home agreed);
  void on_proof(Home home, const tl::expected<void, std::string>& proof, Ticks now);

  bool sees(Home home) const { return look(home).seen; }
  // Both have been looked into, in vain.
  bool sees_none() const;
  Joined joined() const;

 private:
  struct Look {
    bool under_way = false;
    bool seen = false;
    std::string trouble;
    std::optional<Ticks> answered;
  };
  const Look& look(Home home) const { return home == Home::store ? store_ : directory_; }
  bool wanted(Home home, Ticks now, Home agreed) const;

  std::optional<Ticks> begun_;
  Look directory_;
  Look store_;
};

}  // namespace gradmon
