// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/linear_attention.h"

#include <cmath>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/attention/linear_attention_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/attention/linear_attention.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/attention/linear_attention_grad-inl.h"

#if HWY_ONCE
namespace hone::kernels {
namespace {

HWY_EXPORT(lay_out_omega);
HWY_EXPORT(attend_head);
HWY_EXPORT(differentiate_head);

void check(const LinearAttentionArgs& args) {
  constexpr std::string_view kName = "linear_attention";
  HONE_CHECK(args.batch >= 0 && args.queries >= 0 && args.keys >= 0 && args.heads > 0 &&
                 args.qk_dim > 0 && args.v_dim > 0 && args.features > 0,
             kName, "batch, queries, keys >= 0 and heads, dims, features >= 1",
             concat(args.batch, ", ", args.queries, ", ", args.keys, " and ", args.heads, ", ",
                    args.qk_dim, ", ", args.v_dim, ", ", args.features));
  HONE_CHECK(std::isfinite(args.eps) && args.eps >= 0, kName, "a finite eps >= 0", args.eps);
  HONE_CHECK(!args.causal || args.queries == args.keys, kName,
             concat(args.queries, " keys for causal queries"), args.keys);
  HONE_REQUIRE(args.state == nullptr || (args.causal && args.max_exponent != nullptr), kName,
               "Only causal attention goes on from a state, and both of its parts are needed.");
}

// What the workers share, and what each of them needs.
struct WorkFloats {
  Index shared = 0, of_worker = 0;

  Index bytes(Index workers) const {
    return (shared + workers * of_worker) * static_cast<Index>(sizeof(float));
  }
};
WorkFloats work_floats(const LinearAttentionArgs& args, bool backward) {
  FavorWork work{.args = &args};
  const Index of_worker = work.lay_out(nullptr, backward);
  return {round_up(work.omega_size(), 16), of_worker};
}

// Runs body(work, item) for each head of each sequence.
template <class Body>
void for_heads(const LinearAttentionArgs& args, bool backward, Executor& executor,
               const Body& body) {
  FavorWork shared{.args = &args};
  const WorkFloats floats = work_floats(args, backward);
  const Buffer memory(floats.bytes(executor.workers()));
  float* omega = memory.as<float>();
  float* omega_t = omega + args.features * shared.x_stride();
  HWY_DYNAMIC_DISPATCH(lay_out_omega)
  (args, shared.x_stride(), shared.m_stride(), omega, omega_t);
  shared.omega = omega;
  shared.omega_t = omega_t;
  executor.parallel_for(args.batch * args.heads, 1, [&](Index begin, Index end, int worker) {
    FavorWork work = shared;
    work.lay_out(memory.as<float>() + floats.shared + worker * floats.of_worker, backward);
    for (Index item = begin; item < end; ++item) body(work, item);
  });
}

}  // namespace

Index LinearAttentionArgs::checkpoint_floats() const {
  return batch * heads * favor_checkpoints(*this) * (state_floats() + 1);
}

Index linear_attention_bytes(const LinearAttentionArgs& args, bool backward, Index workers) {
  return work_floats(args, backward).bytes(workers);
}

void linear_attention(const LinearAttentionArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("linear_attention", {"queries", args.queries}, {"keys", args.keys},
                  {"heads", args.heads}, {"features", args.features});
  check(args);
  for_heads(args, false, executor, [](const FavorWork& work, Index item) {
    HWY_DYNAMIC_DISPATCH(attend_head)(work, item);
  });
}

void linear_attention_grad(const LinearAttentionGradArgs& args, Executor& executor) {
  const LinearAttentionArgs& forward = args.forward;
  HONE_TRACE_ZONE("linear_attention_grad", {"queries", forward.queries}, {"keys", forward.keys},
                  {"heads", forward.heads}, {"features", forward.features});
  check(forward);
  HONE_REQUIRE(forward.state == nullptr &&
                   (forward.inverse_sums != nullptr || forward.queries == 0) &&
                   (forward.checkpoints != nullptr || forward.checkpoint_floats() == 0),
               "linear_attention_grad",
               "The gradient needs inverse_sums and checkpoints, and has no state.");
  for_heads(forward, true, executor, [&](const FavorWork& work, Index item) {
    HWY_DYNAMIC_DISPATCH(differentiate_head)(args, work, item);
  });
}

}  // namespace hone::kernels
#endif
