// SPDX-License-Identifier: Apache-2.0
#include "control/agree/home_sight.h"

namespace gradmon {
namespace {

constexpr Ticks kAgainAfter{1000};

}  // namespace

bool HomeSight::wanted(Home home, Ticks now, Home agreed) const {
  const Look& asked = look(home);
  if (!begun_ || asked.seen || asked.under_way) return false;
  if (agreed != Home::undecided) {
    if (agreed != home) return false;
  } else if (home == Home::store && !asked.answered) {
    const bool directory_fails = directory_.answered && !directory_.seen;
    return directory_fails || now - *begun_ >= kAgainAfter;
  }
  return !asked.answered || now - *asked.answered >= kAgainAfter;
}

std::vector<Home> HomeSight::due(Ticks now, Home agreed) {
  std::vector<Home> homes;
  for (const Home home : {Home::directory, Home::store}) {
    if (!wanted(home, now, agreed)) continue;
    (home == Home::store ? store_ : directory_).under_way = true;
    homes.push_back(home);
  }
  return homes;
}

void HomeSight::on_proof(Home home, const tl::expected<void, std::string>& proof, Ticks now) {
  Look& answered = home == Home::store ? store_ : directory_;
  answered.under_way = false;
  answered.seen = proof.has_value();
  answered.trouble = proof ? "" : proof.error();
  answered.answered = now;
}

bool HomeSight::sees_none() const {
  return directory_.answered && store_.answered && !directory_.seen && !store_.seen;
}

Joined HomeSight::joined() const {
  const bool both = !directory_.trouble.empty() && !store_.trouble.empty();
  return {directory_.seen, directory_.trouble + (both ? "; " : "") + store_.trouble, store_.seen};
}

}  // namespace gradmon
