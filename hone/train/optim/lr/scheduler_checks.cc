// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/scheduler_checks.h"

#include <cmath>

namespace hone::optim {

Index check_count(std::string_view kind, std::string_view option, Index value, Index least) {
  HONE_CHECK(value >= least, kind, concat(option, " of at least ", least), value);
  return value;
}

double check_number(std::string_view kind, std::string_view option, double value, double least) {
  HONE_CHECK(std::isfinite(value) && value >= least, kind,
             concat("a finite ", option, " of at least ", least), value);
  return value;
}

void check_milestones(std::string_view kind, std::span<const Index> milestones) {
  Index last = 0;
  for (const Index milestone : milestones) {
    HONE_CHECK(milestone > last, kind, concat("a milestone above ", last), milestone);
    last = milestone;
  }
}

}  // namespace hone::optim
