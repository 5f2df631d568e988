// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/infer/kv/layer_group.h"
#include "hone/infer/sched/step_plan.h"

namespace hone::test {

using infer::kBlockTokens;
using infer::TokenId;

constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c15u + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The text of a tenant, and for each position a hash of the tenant and of the text up to and
// including it.
struct Text {
  explicit Text(std::uint64_t tenant_in) : tenant(tenant_in) {}
  void push(TokenId id) {
    const std::uint64_t before = hashes.empty() ? mix(0x5eed, tenant) : hashes.back();
    hashes.push_back(mix(before, static_cast<std::uint64_t>(id)));
    ids.push_back(id);
  }
  // What the model says after the first `length` tokens: a function of tenant and text.
  TokenId next(std::size_t length, TokenId vocab) const {
    return static_cast<TokenId>(mix(hashes[length - 1], 77) % static_cast<std::uint64_t>(vocab));
  }

  std::uint64_t tenant;
  std::vector<TokenId> ids{};
  std::vector<std::uint64_t> hashes{};
};

// Stands in for the KV cache and the forward pass. Each cell remembers what was written there: the
// hash of tenant and text, which differs for every other text, position and tenant. The hashes that
// a row must find are known from the request alone, so a cell that is foreign, stale or missing is
// caught.
class FakeModel {
 public:
  explicit FakeModel(std::vector<infer::LayerGroup> groups)
      : groups_(std::move(groups)), memory_(groups_.size()) {}

  // Makes the copies and writes the rows of all sequences, then reads what each row attends to.
  // `text_of(id)` has the tokens up to the last row, drafts included.
  template <class TextOf>
  void run(const infer::StepPlan& plan, const TextOf& text_of) {
    for (const infer::BlockCopy& copy : plan.copies) {
      Memory& memory = memory_[static_cast<std::size_t>(copy.group)];
      memory[copy.to] = memory[copy.from];
    }
    for (const infer::PlannedSequence& planned : plan.sequences) {
      visit(planned, planned.first_position, text_of(planned.id), &FakeModel::write);
    }
    for (const infer::PlannedSequence& planned : plan.sequences) {
      visit(planned, 0, text_of(planned.id), &FakeModel::read);
    }
  }

  // Overwrites the blocks that nobody refers to.
  void poison_free(const infer::BlockPool& pool) {
    for (std::size_t g = 0; g < memory_.size(); ++g) {
      std::erase_if(memory_[g], [&](const auto& entry) {
        return pool.references(static_cast<Index>(g), entry.first) == 0;
      });
    }
  }

 private:
  using Cells = std::array<std::uint64_t, kBlockTokens>;
  using Memory = std::map<infer::BlockId, Cells>;

  void write(std::size_t group, infer::BlockId block, Index slot, std::uint64_t hash) {
    memory_[group][block][static_cast<std::size_t>(slot)] = hash;
  }
  void read(std::size_t group, infer::BlockId block, Index slot, std::uint64_t hash) {
    const std::uint64_t found = memory_[group][block][static_cast<std::size_t>(slot)];
    if (found == hash) return;
    fail(ErrorCategory::Internal, "fake model",
         concat("own text in block ", block, ", slot ", slot), found == 0 ? "nothing" : "another");
  }

  void visit(const infer::PlannedSequence& planned, Index first, const Text& text,
             void (FakeModel::*access)(std::size_t, infer::BlockId, Index, std::uint64_t)) {
    const Index end = planned.first_position + static_cast<Index>(planned.tokens.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const Index begin = std::max(first, infer::first_read(groups_[g], planned.first_position));
      for (Index p = begin; p < end; ++p) {
        const auto block = planned.blocks[g].at(static_cast<std::size_t>(p / kBlockTokens));
        if (block == infer::kNoBlock) {
          fail(ErrorCategory::Internal, "fake model", concat("a block for position ", p), "none");
        }
        (this->*access)(g, block, p % kBlockTokens, text.hashes.at(static_cast<std::size_t>(p)));
      }
    }
  }

  std::vector<infer::LayerGroup> groups_;
  std::vector<Memory> memory_;
};

}  // namespace hone::test
