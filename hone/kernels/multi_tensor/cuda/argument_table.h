// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"
#include "hone/kernels/cuda/host_device.h"

// Maps a kernel's blocks to chunks of tensors: a struct passed by value as kernel argument, or a
// table in device memory. Both have the same three accessors.
namespace hone::kernels::cuda {

// Positions in TensorEntry::address, in the order of Slot in plan.h.
enum DeviceSlot : int { kParam, kGrad, kMomentum, kSecondMoment, kExtra, kEma, kCopy };
constexpr int kDeviceSlots = 7;

struct TensorEntry {
  void* address[kDeviceSlots] = {};
  Index elements = 0;
};
static_assert(sizeof(TensorEntry) == 64);

struct BlockEntry {
  std::int32_t tensor = 0;  // position in the table
  std::int32_t chunk = 0;
  bool operator==(const BlockEntry&) const = default;
};

// CUDA's limits on argument bytes: everywhere, and with compute capability 7.0, CUDA 12.1 and its
// driver (530) or later.
constexpr int kSmallArgumentBytes = 4096, kLargeArgumentBytes = 32764;
// Reserved for the arguments other than the struct.
constexpr int kArgumentHeaderBytes = 96;

constexpr int kSmallBlocks = 320;
// Number of tensors that fit together with 320 block entries: 36 with four addresses each.
constexpr int small_tensors(int depth) {
  return (kSmallArgumentBytes - kArgumentHeaderBytes - kSmallBlocks * int{sizeof(BlockEntry)}) /
         (8 * (depth + 1));
}
static_assert(small_tensors(4) == 36);
// The large struct is seven small ones; PyTorch sizes its struct the same way.
constexpr int kLargeScale = 7;

template <int... kSlots>
struct SlotList {
  static constexpr int kDepth = sizeof...(kSlots);
};

// kScale is 1 or kLargeScale; kSlots are the slots whose addresses the table has.
template <int kScale, int... kSlots>
struct StructTable {
  static constexpr int kDepth = sizeof...(kSlots);
  static constexpr int kTensors = kScale * small_tensors(kDepth);
  static constexpr int kBlocks = kScale * kSmallBlocks;

  void* addresses[kDepth][kTensors];
  Index lengths[kTensors];
  BlockEntry blocks[kBlocks];

  static constexpr int position(int slot) {
    constexpr int slots[] = {kSlots...};
    for (int i = 0; i < kDepth; ++i) {
      if (slots[i] == slot) return i;
    }
    return -1;
  }

  template <int kSlot>
  static constexpr int kPosition = position(kSlot);

  template <int kSlot>
  HONE_HOST_DEVICE void* address(int tensor) const {
    static_assert(kPosition<kSlot> >= 0, "this table does not carry that slot");
    return addresses[kPosition<kSlot>][tensor];
  }
  HONE_HOST_DEVICE Index elements(int tensor) const { return lengths[tensor]; }
  HONE_HOST_DEVICE BlockEntry block(int index) const { return blocks[index]; }
};

struct DeviceTable {
  const TensorEntry* tensors = nullptr;
  const BlockEntry* blocks = nullptr;

  template <int kSlot>
  HONE_HOST_DEVICE void* address(int tensor) const {
    return tensors[tensor].address[kSlot];
  }
  HONE_HOST_DEVICE Index elements(int tensor) const { return tensors[tensor].elements; }
  HONE_HOST_DEVICE BlockEntry block(int index) const { return blocks[index]; }
};

struct Control;

// Inputs and outputs of a pass other than the tensors; device addresses.
struct PassArguments {
  const Control* control = nullptr;
  const void* scalars = nullptr;  // pass 2: one scalar struct of the rule per tensor
  double* chunk_sums = nullptr;   // pass 1: [block][kSums]
};

// The complete argument of a kernel that runs over the list.
template <class Table>
struct ListArguments {
  PassArguments pass;
  Index chunk_elements = 0;
  Index first_tensor = 0;  // number in the whole list of the table's tensor 0
  Index first_block = 0;   // number in the whole list of the table's block 0
  Table table;
};
static_assert(sizeof(ListArguments<DeviceTable>) - sizeof(DeviceTable) <= kArgumentHeaderBytes);
static_assert(sizeof(ListArguments<StructTable<1, kParam, kGrad, kMomentum, kSecondMoment>>) <=
              kSmallArgumentBytes);
static_assert(sizeof(ListArguments<StructTable<1, kGrad>>) <= kSmallArgumentBytes);
static_assert(sizeof(ListArguments<StructTable<1, 0, 1, 2, 3, 4, 5, 6>>) <= kSmallArgumentBytes);
static_assert(sizeof(ListArguments<StructTable<kLargeScale, kGrad>>) <= kLargeArgumentBytes);
static_assert(sizeof(ListArguments<StructTable<kLargeScale, 0, 1, 2, 3, 4, 5, 6>>) <=
              kLargeArgumentBytes);

}  // namespace hone::kernels::cuda
