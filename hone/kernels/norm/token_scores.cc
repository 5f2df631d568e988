// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/token_scores.h"

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/norm/token_scores.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/norm/token_scores-inl.h"

#if HWY_ONCE
namespace hone::kernels {
namespace {

void check_targets(std::string_view op, Index rows, Index vocab, const std::int32_t* targets) {
  HONE_CHECK(rows >= 0, op, "rows >= 0", rows);
  HONE_CHECK(vocab > 0, op, "vocab > 0", vocab);
  for (Index row = 0; row < rows; ++row) {
    HONE_CHECK(targets[row] >= 0 && targets[row] < vocab, op, concat("a target id below ", vocab),
               targets[row]);
  }
}

}  // namespace

HWY_EXPORT(score_token_rows);
HWY_EXPORT(compare_token_rows);

void score_tokens(const TokenScoreArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("score_tokens", {"rows", args.rows}, {"vocab", args.vocab});
  check_targets("score_tokens", args.rows, args.vocab, args.targets);
  executor.parallel_for(args.rows, rows_per_chunk(args.vocab), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(score_token_rows)(args, begin, end);
  });
}

void compare_tokens(const TokenPairArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("compare_tokens", {"rows", args.rows}, {"vocab", args.vocab});
  check_targets("compare_tokens", args.rows, args.vocab, args.targets);
  executor.parallel_for(args.rows, rows_per_chunk(args.vocab), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(compare_token_rows)(args, begin, end);
  });
}

}  // namespace hone::kernels
#endif
