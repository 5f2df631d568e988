// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/fused_step.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/trace.h"
#include "hone/kernels/multi_tensor/dispatch.h"
#include "hone/kernels/multi_tensor/group_check.h"
#include "hone/kernels/multi_tensor/pass/finish.h"
#include "hone/kernels/multi_tensor/pass/state_codec.h"
#include "hone/kernels/multi_tensor/pass/strided_copy.h"
#include "hone/kernels/multi_tensor/prefetch.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "multi_tensor step";

// Tensors that go through both passes together when no global norm is needed: their g and m
// (8 bytes per element, 8 MiB) stay in a common last-level cache between the passes.
constexpr Index kBatchElements = Index{1} << 20;

bool all_within(const float* data, Index length, float largest) {
  bool within = true;
  for (Index i = 0; i < length; ++i) within &= std::abs(data[i]) <= largest;
  return within;
}

// The largest number that stays finite in storage, whichever way it is rounded.
float largest_stored(Dtype dtype) {
  return dtype == Dtype::BFloat16 ? 0x1.fep127f : std::numeric_limits<float>::max();
}

class FusedStep {
 public:
  FusedStep(const MultiTensorPlan& plan, StepRule& rule, const StepControl& control,
            Executor& executor)
      : plan_(plan), rule_(rule), control_(control), executor_(executor) {
    statistics_ = rule.statistics();
    if (statistics_ == Statistics::None && control.needs_global_norm()) {
      statistics_ = Statistics::Norm;
    }
    if (statistics_ != Statistics::None) gather_ = choose_gather(statistics_);
    sums_per_chunk_ = count_sums(statistics_);
    sums_.resize(static_cast<std::size_t>(plan.chunks() * sums_per_chunk_));
    if (plan.has_indirect() || control.checked) {
      scratch_ =
          Buffer(executor.workers() * kScratchSlots * scratch_elements() * Index{sizeof(float)});
    }
  }

  StepReport run() {
    report_.temporary_bytes = static_cast<Index>(sums_.size() * sizeof(double)) + scratch_.bytes() +
                              rule_.temporary_bytes();
    const bool sums_first =
        control_.needs_global_norm() || rule_.needs_all_sums() || control_.checked;
    if (statistics_ == Statistics::None || sums_first) {
      step_in_two_sweeps();
    } else if (rule_.takes_sums_late()) {
      step_with_late_sums();
    } else {
      step_while_in_cache();
    }
    if (report_.stepped) {
      rule_.commit();
      for (Index& counter : plan_.step()) ++counter;
    }
    return report_;
  }

 private:
  void step_in_two_sweeps() {
    if (statistics_ != Statistics::None) {
      for_each_chunk([&](Index c, int worker) { gather_chunk(c, worker); });
    }
    if (control_.needs_global_norm() && !measure_norm()) return;
    const double grad_scale = control_.inv_scale * report_.clip_coef;
    if (rule_.needs_all_sums()) {
      rule_.prepare_all([&](Index tensor) { return add_sums(tensor); }, grad_scale);
    }
    for (Index tensor = 0; tensor < plan_.tensors(); ++tensor) {
      rule_.prepare(tensor, add_sums(tensor), grad_scale);
    }
    rule_.run_between(executor_);
    if (control_.checked && !try_step()) return;
    for_each_chunk([&](Index c, int worker) { update_chunk(c, worker); });
    if (rule_.takes_sums_late()) absorb_sums(grad_scale);
  }

  void step_with_late_sums() {
    for (Index tensor = 0; tensor < plan_.tensors(); ++tensor) {
      rule_.prepare(tensor, {}, control_.inv_scale);
    }
    for_each_chunk([&](Index c, int worker) {
      gather_chunk(c, worker);
      update_chunk(c, worker);
    });
    absorb_sums(control_.inv_scale);
  }

  void absorb_sums(double grad_scale) {
    for (Index tensor = 0; tensor < plan_.tensors(); ++tensor) {
      rule_.absorb(tensor, add_sums(tensor), grad_scale);
    }
  }

  // Whole tensors: both passes by one worker. Larger ones in batches, pass 1 then pass 2. Same
  // chunks, same order of additions as in two sweeps.
  void step_while_in_cache() {
    executor_.parallel_for(static_cast<Index>(plan_.units().size()), 1,
                           [&](Index begin, Index end, int worker) {
                             for (Index unit = begin; unit < end; ++unit) {
                               if (plan_.unit_is_whole(unit)) step_whole_tensors(unit, worker);
                             }
                           });
    const auto units = plan_.units();
    const auto count = static_cast<Index>(units.size());
    Index begin = 0, elements = 0;
    for (Index unit = 0; unit < count; ++unit) {
      if (plan_.unit_is_whole(unit)) continue;
      const Chunk& chunk = plan_.chunk_list()[units[static_cast<std::size_t>(unit)].begin];
      elements += chunk.length;
      const bool ends_tensor = chunk.offset + chunk.length == plan_.tensor(chunk.tensor).elements;
      if (ends_tensor && elements >= kBatchElements) {
        step_batch(begin, unit + 1);
        begin = unit + 1;
        elements = 0;
      }
    }
    if (elements > 0) step_batch(begin, count);
  }

  void step_whole_tensors(Index unit, int worker) {
    const ChunkUnit& range = plan_.units()[static_cast<std::size_t>(unit)];
    for (Index c = range.begin; c < range.end; ++c) {
      const Index tensor = plan_.chunk_list()[static_cast<std::size_t>(c)].tensor;
      prefetch(c, Slot::Param);
      if (rule_.needs_sums(tensor)) gather_chunk(c, worker);
      rule_.prepare(tensor, add_sums(tensor), control_.inv_scale);
      prefetch(c + 2, Slot::Grad);
      prefetch(c + 2, Slot::Momentum);
      update_chunk(c, worker);
    }
  }

  // The hardware's prefetchers start anew with every tensor and stop at page borders: for small
  // tensors, most of whose time would be the wait for the first lines. (Inlined by force: GCC drops
  // calls of a function that only prefetches.)
  [[gnu::always_inline]] void prefetch(Index c, Slot slot) const {
    constexpr Index kMostElements = 4096;
    if (c >= plan_.chunks()) return;
    const Chunk& chunk = plan_.chunk_list()[static_cast<std::size_t>(c)];
    if (chunk.length > kMostElements || is_indirect(chunk)) return;
    const float* data = plan_.tensor(chunk.tensor).slot(slot);
    if (data == nullptr) return;
    prefetch_lines(data + chunk.offset, chunk.length * Index{sizeof(float)});
  }

  // Units [begin, end) that are parts of larger tensors; each is one chunk.
  void step_batch(Index begin, Index end) {
    const auto for_each_part = [&](auto&& body) {
      executor_.parallel_for(end - begin, 1, [&](Index first, Index last, int worker) {
        for (Index unit = begin + first; unit < begin + last; ++unit) {
          if (plan_.unit_is_whole(unit)) continue;
          body(plan_.units()[static_cast<std::size_t>(unit)].begin, worker);
        }
      });
    };
    for_each_part([&](Index c, int worker) {
      const Index tensor = plan_.chunk_list()[static_cast<std::size_t>(c)].tensor;
      if (rule_.needs_sums(tensor)) gather_chunk(c, worker);
    });
    for (Index unit = begin; unit < end; ++unit) {
      if (plan_.unit_is_whole(unit)) continue;
      const Chunk& chunk = plan_.chunk_list()[plan_.units()[static_cast<std::size_t>(unit)].begin];
      if (chunk.offset > 0) continue;
      rule_.prepare(chunk.tensor, add_sums(chunk.tensor), control_.inv_scale);
    }
    for_each_part([&](Index c, int worker) { update_chunk(c, worker); });
  }

  template <class Body>
  void for_each_chunk(const Body& body) {
    executor_.parallel_for(
        static_cast<Index>(plan_.units().size()), 1, [&](Index begin, Index end, int worker) {
          for (Index unit = begin; unit < end; ++unit) {
            const ChunkUnit& range = plan_.units()[static_cast<std::size_t>(unit)];
            for (Index c = range.begin; c < range.end; ++c) body(c, worker);
          }
        });
  }

  Index scratch_elements() const { return round_up(plan_.longest_chunk(), kCacheLine); }

  // The chunk where it lies.
  ChunkOperands dense_operands(const Chunk& chunk) const {
    return {.param = slot_of(chunk, Slot::Param),
            .grad = slot_of(chunk, Slot::Grad),
            .momentum = slot_of(chunk, Slot::Momentum),
            .second_moment = slot_of(chunk, Slot::SecondMoment),
            .extra = slot_of(chunk, Slot::Extra),
            .length = chunk.length,
            .offset = chunk.offset};
  }
  // A slot that is dense f32.
  float* slot_of(const Chunk& chunk, Slot slot) const {
    float* data = plan_.tensor(chunk.tensor).slot(slot);
    return data == nullptr ? nullptr : data + chunk.offset;
  }

  // The rule's slots and the moving average.
  static constexpr int kScratchSlots = static_cast<int>(Slot::Ema) + 1;

  // What a chunk of an indirect tensor goes through.
  struct Detour {
    float* slots[kScratchSlots] = {};
    bool copied[kScratchSlots] = {};

    ChunkOperands operands(const Chunk& chunk) const {
      return {slots[0], slots[1], slots[2], slots[3], slots[4], chunk.length, chunk.offset};
    }
  };

  // The first `slots` of those that are not dense f32 blocks, or all, copied into this worker's
  // scratch.
  Detour copy_to_scratch(const Chunk& chunk, int worker, bool all,
                         int slots = kScratchSlots) const {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
    Detour detour;
    for (int s = 0; s < slots; ++s) {
      if (tensor.data[s] == nullptr) continue;
      float* scratch = scratch_.as<float>() + (worker * kScratchSlots + s) * scratch_elements();
      detour.slots[s] = scratch;
      detour.copied[s] = true;
      if (tensor.indirect >= 0 && plan_.indirect(tensor).strided) {
        copy_from_strided(plan_.indirect(tensor).views[s], chunk.offset, chunk.length, scratch);
      } else if (tensor.indirect >= 0 && is_narrow(tensor, s)) {
        codec_.decode(narrow_part(tensor, s, chunk), scratch);
      } else if (all) {
        std::copy_n(static_cast<const float*>(tensor.data[s]) + chunk.offset, chunk.length,
                    scratch);
      } else {
        detour.slots[s] = static_cast<float*>(tensor.data[s]) + chunk.offset;
        detour.copied[s] = false;
      }
    }
    return detour;
  }

  void copy_back(const Chunk& chunk, const Detour& detour) const {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
    for (int s = 0; s < kScratchSlots; ++s) {
      const bool unchanged =
          s == static_cast<int>(Slot::Grad) && control_.grad == GradWriteBack::None;
      if (!detour.copied[s] || unchanged) continue;
      if (plan_.indirect(tensor).strided) {
        copy_to_strided(detour.slots[s], plan_.indirect(tensor).views[s], chunk.offset,
                        chunk.length);
      } else {
        codec_.encode(detour.slots[s], rounding_of(chunk, s), narrow_part(tensor, s, chunk));
      }
    }
  }

  bool is_narrow(const MultiTensorPlan::Tensor& tensor, int slot) const {
    return plan_.indirect(tensor).views[slot].dtype != Dtype::Float32;
  }
  NarrowChunk narrow_part(const MultiTensorPlan::Tensor& tensor, int slot,
                          const Chunk& chunk) const {
    const MultiTensorPlan::Indirect& indirect = plan_.indirect(tensor);
    const Dtype dtype = indirect.views[slot].dtype;
    float* scales = indirect.scales[slot];
    return {dtype, static_cast<std::byte*>(tensor.data[slot]) + chunk.offset * bytes_of(dtype),
            scales == nullptr ? nullptr : scales + chunk.offset / kCodeBlock, chunk.length};
  }
  RoundingKey rounding_of(const Chunk& chunk, int slot) const {
    const std::uint32_t key = plan_.indirect(plan_.tensor(chunk.tensor)).rounding_key;
    const Index t = plan_.step()[static_cast<std::size_t>(chunk.tensor)] + 1;
    return {mix_rounding_key(control_.rounding_seed, key, t, slot), chunk.offset,
            slot == static_cast<int>(Slot::Grad) || slot == static_cast<int>(Slot::Copy)};
  }
  bool is_indirect(const Chunk& chunk) const { return plan_.tensor(chunk.tensor).indirect >= 0; }

  void gather_chunk(Index c, int worker) {
    const Chunk& chunk = plan_.chunk_list()[static_cast<std::size_t>(c)];
    double* sums = sums_.data() + c * sums_per_chunk_;
    const int slots =
        static_cast<int>(statistics_ == Statistics::Norm ? Slot::Grad : Slot::Momentum) + 1;
    gather_(is_indirect(chunk) ? copy_to_scratch(chunk, worker, false, slots).operands(chunk)
                               : dense_operands(chunk),
            sums);
  }

  void update_chunk(Index c, int worker) {
    const Chunk& chunk = plan_.chunk_list()[static_cast<std::size_t>(c)];
    if (!is_indirect(chunk)) {
      const ChunkOperands operands = dense_operands(chunk);
      rule_.update(chunk.tensor, operands, false);
      return finish_chunk(chunk, operands, slot_of(chunk, Slot::Ema));
    }
    const Index done = step_narrow_moments(chunk);
    const Chunk rest{chunk.tensor, chunk.offset + done, chunk.length - done};
    for_each_piece(rest, [&](const Chunk& piece) {
      const Detour detour = copy_to_scratch(piece, worker, false);
      prefetch_next_piece(piece);
      rule_.update(piece.tensor, detour.operands(piece), false);
      finish_chunk(piece, detour.operands(piece), detour.slots[static_cast<int>(Slot::Ema)]);
      copy_back(piece, detour);
    });
  }

  // Steps the whole blocks of a chunk whose moments are narrow; returns how many elements these
  // are.
  Index step_narrow_moments(const Chunk& chunk) const {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
    if (!has_vector_loops_ || !rule_.takes_narrow_moments(chunk.tensor)) return 0;
    const Chunk whole{chunk.tensor, chunk.offset, chunk.length / kCodeBlock * kCodeBlock};
    if (!plan_.indirect(tensor).only_moments || whole.length == 0) return 0;
    const auto narrow = [&](Slot slot) -> NarrowMoment {
      const int s = static_cast<int>(slot);
      if (tensor.data[s] == nullptr) return {};
      return {narrow_part(tensor, s, whole), rounding_of(chunk, s)};
    };
    const NarrowMoments moments{narrow(Slot::Momentum), narrow(Slot::SecondMoment)};
    const ChunkOperands operands{.param = slot_of(whole, Slot::Param),
                                 .grad = slot_of(whole, Slot::Grad),
                                 .extra = slot_of(whole, Slot::Extra),
                                 .length = whole.length,
                                 .offset = whole.offset,
                                 .narrow = &moments};
    rule_.update(whole.tensor, operands, false);
    finish_chunk(whole, operands, slot_of(whole, Slot::Ema));
    return whole.length;
  }

  // What lies behind a piece arrives while the piece is coded: without that memory and arithmetic
  // take turns.
  [[gnu::always_inline]] void prefetch_next_piece(const Chunk& piece) const {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(piece.tensor);
    if (plan_.indirect(tensor).strided) return;
    const Index begin = piece.offset + piece.length;
    const Index end = std::min(begin + piece.length, tensor.elements);
    for (int s = 0; s < kScratchSlots; ++s) {
      if (tensor.data[s] == nullptr) continue;
      const Index bytes = bytes_of(plan_.indirect(tensor).views[s].dtype);
      const auto* data = static_cast<const std::byte*>(tensor.data[s]);
      prefetch_lines(data + begin * bytes, (end - begin) * bytes);
    }
  }

  // Pieces of an indirect tensor's chunk, small enough that their scratch stays in the first-level
  // cache.
  template <class Body>
  void for_each_piece(const Chunk& chunk, const Body& body) const {
    constexpr Index kPiece = 2 * kCodeBlock;
    const Index step = rule_.wants_whole_chunks(chunk.tensor) ? chunk.length : kPiece;
    for (Index begin = 0; begin < chunk.length; begin += step) {
      body({chunk.tensor, chunk.offset + begin, std::min(step, chunk.length - begin)});
    }
  }

  // What is left in the gradient, moving average and copy of the new parameter.
  void finish_chunk(const Chunk& chunk, const ChunkOperands& operands, float* average) const {
    if (control_.grad == GradWriteBack::Zero) std::fill_n(operands.grad, chunk.length, 0.0f);
    if (control_.grad == GradWriteBack::Unscaled) {
      finish_.scale(operands.grad, chunk.length,
                    static_cast<float>(control_.inv_scale * report_.clip_coef));
    }
    if (average != nullptr) {
      finish_.average(operands.param, chunk.length, static_cast<float>(1 - control_.ema_decay),
                      average);
    }
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
    constexpr int kCopy = static_cast<int>(Slot::Copy);
    if (tensor.data[kCopy] == nullptr) return;
    codec_.encode(operands.param, rounding_of(chunk, kCopy), narrow_part(tensor, kCopy, chunk));
  }

  // Sums of one tensor's chunks, in order.
  TorqueSums add_sums(Index tensor) const {
    double total[6] = {};
    const Index end = plan_.first_chunk(tensor + 1);
    for (Index c = plan_.first_chunk(tensor); c < end; ++c) {
      for (Index s = 0; s < sums_per_chunk_; ++s) total[s] += sums_[c * sums_per_chunk_ + s];
    }
    return {total[0], total[1], total[2], total[3], total[4], total[5]};
  }

  // Fills the report; false when the step must be skipped.
  bool measure_norm() {
    double total = 0;
    for (Index tensor = 0; tensor < plan_.tensors(); ++tensor) {
      const double gg = add_sums(tensor).gg;
      if (!std::isfinite(gg) && report_.first_nonfinite_tensor < 0) {
        report_.first_nonfinite_tensor = tensor;
      }
      total += gg;
    }
    report_.grad_norm = control_.inv_scale * std::sqrt(total);
    const bool must_be_finite = control_.skip_nonfinite || control_.inv_scale != 1;
    if (must_be_finite && report_.first_nonfinite_tensor >= 0) {
      report_.stepped = false;
      return false;
    }
    if (control_.clip_norm > 0) {
      report_.clip_coef = clip_coefficient(control_.clip_norm, report_.grad_norm);
    }
    return true;
  }

  // Computes every new value without storing it. False when one is inf or NaN.
  bool try_step() {
    constexpr Index kNone = std::numeric_limits<Index>::max();
    std::atomic<Index> first_bad{kNone};
    for_each_chunk([&](Index c, int worker) {
      const Chunk& chunk = plan_.chunk_list()[static_cast<std::size_t>(c)];
      const ChunkOperands tried = copy_to_scratch(chunk, worker, true).operands(chunk);
      rule_.update(chunk.tensor, tried, true);
      bool finite = true;
      const auto check = [&](Slot slot, const float* values) {
        if (values == nullptr) return;
        const Dtype dtype =
            is_indirect(chunk)
                ? plan_.indirect(plan_.tensor(chunk.tensor)).views[static_cast<int>(slot)].dtype
                : Dtype::Float32;
        finite = finite && all_within(values, chunk.length, largest_stored(dtype));
      };
      check(Slot::Param, tried.param);
      check(Slot::Momentum, tried.momentum);
      check(Slot::SecondMoment, tried.second_moment);
      check(Slot::Extra, tried.extra);
      if (finite) return;
      Index known = first_bad.load(std::memory_order_relaxed);
      while (chunk.tensor < known && !first_bad.compare_exchange_weak(known, chunk.tensor)) {
      }
    });
    if (first_bad == kNone) return true;
    report_.stepped = false;
    report_.first_nonfinite_tensor = first_bad;
    return false;
  }

  const MultiTensorPlan& plan_;
  StepRule& rule_;
  const StepControl& control_;
  Executor& executor_;
  StateCodec codec_ = choose_state_codec();
  const bool has_vector_loops_ = !wants_reference();
  FinishPass finish_ = choose_finish();
  Statistics statistics_ = Statistics::None;
  GatherChunk gather_ = nullptr;
  Index sums_per_chunk_ = 0;
  std::vector<double> sums_;  // [chunk][sums_per_chunk_]
  Buffer scratch_;            // [worker][slot][scratch_elements()]
  StepReport report_;
};

}  // namespace

StepReport run_fused_step(const MultiTensorPlan& plan, StepRule& rule, const StepControl& control,
                          Executor& executor) {
  HONE_TRACE_ZONE("multi_tensor step");
  check_step_control(kOp, control);
  if (control.grad != GradWriteBack::None) plan.check_gradients_writable();
  return FusedStep(plan, rule, control, executor).run();
}

}  // namespace hone::kernels
