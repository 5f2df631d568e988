// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/staged_chunk.h"

#include <algorithm>
#include <limits>

#include "hone/kernels/multi_tensor/codec/strided_copy.h"
#include "hone/kernels/multi_tensor/prefetch.h"

namespace hone::kernels {

ChunkStager::ChunkStager(const MultiTensorPlan& plan, const StepControl& control, int workers,
                         bool stages_all)
    : plan_(plan), control_(control), stride_(round_up(plan.longest_chunk(), kCacheLine)) {
  if (plan.has_indirect() || stages_all) {
    scratch_ = Buffer(workers * kStagedSlots * stride_ * Index{sizeof(float)});
  }
}

StagedChunk ChunkStager::in_place(const Chunk& chunk) const {
  const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
  StagedChunk staged;
  for (int s = 0; s < kStagedSlots; ++s) {
    if (tensor.data(s) == nullptr) continue;
    staged.slots[s] = static_cast<float*>(tensor.data(s)) + chunk.offset;
  }
  return staged;
}

StagedChunk ChunkStager::stage(const Chunk& chunk, int worker, bool all, int slots) const {
  const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
  const bool strided = is_indirect(chunk) && plan_.indirect(tensor).strided;
  StagedChunk staged;
  for (int s = 0; s < slots; ++s) {
    if (tensor.data(s) == nullptr) continue;
    const bool narrow = is_indirect(chunk) && is_narrow(tensor, s);
    staged.copied[s] = strided || narrow || all;
    if (!staged.copied[s]) {
      staged.slots[s] = static_cast<float*>(tensor.data(s)) + chunk.offset;
      continue;
    }
    float* scratch = scratch_.as<float>() + (worker * kStagedSlots + s) * stride_;
    staged.slots[s] = scratch;
    if (strided) {
      copy_from_strided(plan_.indirect(tensor).views[s], chunk.offset, chunk.length, scratch);
    } else if (narrow) {
      codec_.decode(narrow_part(chunk, s), scratch);
    } else {
      std::copy_n(static_cast<const float*>(tensor.data(s)) + chunk.offset, chunk.length, scratch);
    }
  }
  return staged;
}

void ChunkStager::write_back(const Chunk& chunk, const StagedChunk& staged) const {
  const MultiTensorPlan::Indirect& indirect = plan_.indirect(plan_.tensor(chunk.tensor));
  for (int s = 0; s < kStagedSlots; ++s) {
    const bool unchanged =
        s == static_cast<int>(Slot::Grad) && control_.grad == GradWriteBack::None;
    if (!staged.copied[s] || unchanged) continue;
    if (indirect.strided) {
      copy_to_strided(staged.slots[s], indirect.views[s], chunk.offset, chunk.length);
    } else {
      codec_.encode(staged.slots[s], rounding_of(chunk, s), narrow_part(chunk, s));
    }
  }
}

void ChunkStager::prefetch_behind(const Chunk& piece) const {
  const MultiTensorPlan::Tensor& tensor = plan_.tensor(piece.tensor);
  if (plan_.indirect(tensor).strided) return;
  const Index begin = piece.offset + piece.length;
  const Index end = std::min(begin + piece.length, tensor.elements);
  for (int s = 0; s < kStagedSlots; ++s) {
    if (tensor.data(s) == nullptr) continue;
    const Index bytes = bytes_of(plan_.indirect(tensor).views[s].dtype);
    const auto* data = static_cast<const std::byte*>(tensor.data(s));
    prefetch_lines(data + begin * bytes, (end - begin) * bytes);
  }
}

NarrowMoments ChunkStager::narrow_moments(const Chunk& chunk) const {
  const auto moment = [&](Slot slot) -> NarrowMoment {
    const int s = static_cast<int>(slot);
    if (plan_.tensor(chunk.tensor).data(s) == nullptr) return {};
    return {narrow_part(chunk, s), rounding_of(chunk, s)};
  };
  return {moment(Slot::Momentum), moment(Slot::SecondMoment)};
}

void ChunkStager::store_copy(const Chunk& chunk, const float* param) const {
  constexpr int kCopy = static_cast<int>(Slot::Copy);
  if (plan_.tensor(chunk.tensor).data(kCopy) == nullptr) return;
  codec_.encode(param, rounding_of(chunk, kCopy), narrow_part(chunk, kCopy));
}

float ChunkStager::largest_stored(const Chunk& chunk, Slot slot) const {
  constexpr float kLargestBF16 = 0x1.fep127f;
  const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
  const bool bf16 = is_indirect(chunk) &&
                    plan_.indirect(tensor).views[static_cast<int>(slot)].dtype == Dtype::BFloat16;
  return bf16 ? kLargestBF16 : std::numeric_limits<float>::max();
}

NarrowChunk ChunkStager::narrow_part(const Chunk& chunk, int slot) const {
  const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
  const MultiTensorPlan::Indirect& indirect = plan_.indirect(tensor);
  const Dtype dtype = indirect.views[slot].dtype;
  float* scales = indirect.scales[slot];
  return {dtype, static_cast<std::byte*>(tensor.data(slot)) + chunk.offset * bytes_of(dtype),
          scales == nullptr ? nullptr : scales + chunk.offset / kCodeBlock, chunk.length};
}

RoundingKey ChunkStager::rounding_of(const Chunk& chunk, int slot) const {
  const std::uint32_t key = plan_.tensor(chunk.tensor).rounding_key;
  const Index t = plan_.step()[static_cast<std::size_t>(chunk.tensor)] + 1;
  const bool nearest = slot == static_cast<int>(Slot::Grad) || slot == static_cast<int>(Slot::Copy);
  return {mix_rounding_key(control_.rounding_seed, key, t, slot), chunk.offset, nearest};
}

}  // namespace hone::kernels
