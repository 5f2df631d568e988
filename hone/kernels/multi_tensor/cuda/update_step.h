// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/multi_tensor/cuda/control.h"
#include "hone/kernels/multi_tensor/cuda/gather_step.h"

// Pass 2, the work of one thread on one chunk: unscale, clip, decay, rule, moving average, low
// precision copy and gradient write-back. It reads and writes every slot once.
namespace hone::kernels::cuda {

// Slots of one chunk; null where a tensor has none.
template <class G, class C>
struct ChunkSlots {
  float* param = nullptr;
  G* grad = nullptr;
  float *momentum = nullptr, *second_moment = nullptr, *extra = nullptr;
  C* copy = nullptr;
  float* ema = nullptr;
};

// Operations after the rule, the same for all elements.
struct AfterRule {
  float ema_share = 0;
  GradWriteBack grad = GradWriteBack::None;
};

template <class T>
HONE_HOST_DEVICE inline int misalignment(const T* data) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(data) / sizeof(T) % kLanes);
}

// Returns the number of elements, below 4, before all slots are aligned to four elements, or -1 if
// they never are at the same time.
template <class Rule, bool kCopies, class G, class C>
HONE_HOST_DEVICE inline int common_head(const ChunkSlots<G, C>& slots) {
  const int first = misalignment(slots.param);
  bool same = misalignment(slots.grad) == first;
  if constexpr (Rule::kMomentum) same = same && misalignment(slots.momentum) == first;
  if constexpr (Rule::kSecondMoment) same = same && misalignment(slots.second_moment) == first;
  if constexpr (Rule::kExtra) same = same && misalignment(slots.extra) == first;
  if constexpr (kCopies) {
    same = same && (slots.copy == nullptr || misalignment(slots.copy) == first) &&
           (slots.ema == nullptr || misalignment(slots.ema) == first);
  }
  return same ? (kLanes - first) % kLanes : -1;
}

template <int kCount, class G, class C>
HONE_HOST_DEVICE inline void write_copies(const ChunkSlots<G, C>& slots, float ema_share, Index i,
                                          const float (&p)[kCount]) {
  if (slots.copy != nullptr) store<kCount>(p, slots.copy + i);
  if (slots.ema == nullptr) return;
  float ema[kCount];
  load<kCount>(slots.ema + i, ema);
  for (int l = 0; l < kCount; ++l) ema[l] = ::fmaf(ema_share, p[l] - ema[l], ema[l]);
  store<kCount>(ema, slots.ema + i);
}

// `scaled` has the sign that maximizing applied.
template <int kCount, class G>
HONE_HOST_DEVICE inline void write_grad(GradWriteBack mode, bool maximize,
                                        const float (&scaled)[kCount], G* to) {
  float left[kCount] = {};
  if (mode == GradWriteBack::Unscaled) {
    for (int l = 0; l < kCount; ++l) left[l] = maximize ? -scaled[l] : scaled[l];
  }
  store<kCount>(left, to);
}

// Steps elements [i, i + kCount), which must be aligned to kCount.
template <class Rule, int kCount, bool kCopies, class Scalars, class G, class C>
HONE_HOST_DEVICE inline void step_elements(const Scalars& scalars, const ChunkSlots<G, C>& slots,
                                           const AfterRule& after, Index i) {
  float p[kCount], g[kCount], m[kCount] = {}, v[kCount] = {}, x[kCount] = {};
  load<kCount>(slots.param + i, p);
  load<kCount>(slots.grad + i, g);
  if constexpr (Rule::kMomentum) load<kCount>(slots.momentum + i, m);
  if constexpr (Rule::kSecondMoment) load<kCount>(slots.second_moment + i, v);
  if constexpr (Rule::kExtra) load<kCount>(slots.extra + i, x);
  for (int l = 0; l < kCount; ++l) {
    g[l] *= scalars.grad_scale;
    Rule::apply(scalars, p[l], g[l], m[l], v[l], x[l]);
  }
  store<kCount>(p, slots.param + i);
  if constexpr (Rule::kMomentum) store<kCount>(m, slots.momentum + i);
  if constexpr (Rule::kSecondMoment) store<kCount>(v, slots.second_moment + i);
  if constexpr (Rule::kExtra) store<kCount>(x, slots.extra + i);
  if constexpr (kCopies) write_copies<kCount>(slots, after.ema_share, i, p);
  if (after.grad != GradWriteBack::None) {
    write_grad<kCount>(after.grad, scalars.grad_scale < 0, g, slots.grad + i);
  }
}

template <class Rule, class G, class C, bool kCopies, class Table>
HONE_HOST_DEVICE inline ChunkSlots<G, C> slots_of(const Table& table, int tensor, Index offset) {
  ChunkSlots<G, C> slots;
  slots.param = static_cast<float*>(table.template address<kParam>(tensor)) + offset;
  slots.grad = static_cast<G*>(table.template address<kGrad>(tensor)) + offset;
  if constexpr (Rule::kMomentum) {
    slots.momentum = static_cast<float*>(table.template address<kMomentum>(tensor)) + offset;
  }
  if constexpr (Rule::kSecondMoment) {
    slots.second_moment =
        static_cast<float*>(table.template address<kSecondMoment>(tensor)) + offset;
  }
  if constexpr (Rule::kExtra) {
    slots.extra = static_cast<float*>(table.template address<kExtra>(tensor)) + offset;
  }
  if constexpr (kCopies) {
    auto* copy = static_cast<C*>(table.template address<kCopy>(tensor));
    auto* ema = static_cast<float*>(table.template address<kEma>(tensor));
    if (copy != nullptr) slots.copy = copy + offset;
    if (ema != nullptr) slots.ema = ema + offset;
  }
  return slots;
}

// Steps every `threads`-th access of the block's chunk.
template <class Policy, class G, class C, bool kCopies, class Table>
HONE_HOST_DEVICE inline void update_thread(const ListArguments<Table>& a, int block, int thread,
                                           int threads) {
  if (a.pass.control->results.skip != 0) return;
  const BlockEntry entry = a.table.block(block);
  const Index offset = entry.chunk * a.chunk_elements;
  const Index rest = a.table.elements(entry.tensor) - offset;
  const Index length = rest < a.chunk_elements ? rest : a.chunk_elements;
  using Rule = typename Policy::Rule;
  const auto* all_scalars = static_cast<const typename Policy::Scalars*>(a.pass.scalars);
  const typename Policy::Scalars scalars = all_scalars[a.first_tensor + entry.tensor];
  const auto slots = slots_of<Rule, G, C, kCopies>(a.table, entry.tensor, offset);
  const AfterRule after{a.pass.control->values.ema_share, a.pass.control->values.grad};

  const int aligned_from = common_head<Rule, kCopies>(slots);
  const Index head = aligned_from < 0 || aligned_from > length ? length : aligned_from;
  const Index packs = (length - head) / kLanes;
  HONE_UNROLL_1
  for (Index i = thread; i < head; i += threads) {
    step_elements<Rule, 1, kCopies>(scalars, slots, after, i);
  }
  HONE_UNROLL_1
  for (Index i = thread; i < packs; i += threads) {
    step_elements<Rule, kLanes, kCopies>(scalars, slots, after, head + i * kLanes);
  }
  HONE_UNROLL_1
  for (Index i = head + packs * kLanes + thread; i < length; i += threads) {
    step_elements<Rule, 1, kCopies>(scalars, slots, after, i);
  }
}

}  // namespace hone::kernels::cuda
