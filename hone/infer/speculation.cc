// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/speculation.h"

#include "hone/core/check.h"

namespace hone::infer {

std::string_view name_of(SpecRule rule) { return rule == SpecRule::Coupled ? "coupled" : "exact"; }

void SpecStats::record(Index drafted_in_round, Index examined_in_round, Index accepted_in_round,
                       Index emitted_in_round) {
  HONE_CHECK(0 <= accepted_in_round && accepted_in_round <= examined_in_round &&
                 examined_in_round <= drafted_in_round && drafted_in_round <= kMaxDraftDepth,
             "record", concat("accepted <= examined <= drafted <= ", kMaxDraftDepth),
             concat(accepted_in_round, ", ", examined_in_round, ", ", drafted_in_round));
  ++rounds;
  drafted += drafted_in_round;
  examined += examined_in_round;
  accepted += accepted_in_round;
  emitted += emitted_in_round;
  for (Index i = 0; i < examined_in_round; ++i) ++examined_at[static_cast<std::size_t>(i)];
  for (Index i = 0; i < accepted_in_round; ++i) ++accepted_at[static_cast<std::size_t>(i)];
}

}  // namespace hone::infer
