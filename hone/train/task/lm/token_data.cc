// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/token_data.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/data/permute.h"

namespace hone::task {
namespace {

// Philox streams, one for each kind of draw.
constexpr std::uint32_t kStartStream = 1, kWindowOrderStream = 2;

std::uint64_t draw(std::uint64_t seed, std::uint64_t number, std::uint32_t stream) {
  const PhiloxBlock block = philox(seed, {static_cast<std::uint32_t>(number),
                                          static_cast<std::uint32_t>(number >> 32), stream, 0});
  return std::uint64_t{block[0]} << 32 | block[1];
}

}  // namespace

TokenWindows::TokenWindows(std::vector<text::TokenId> tokens, Index window, std::uint64_t seed)
    : tokens_(std::move(tokens)), window_(window), seed_(seed) {
  const auto count = static_cast<Index>(tokens_.size());
  HONE_CHECK(count > window, "data.window",
             concat("fewer than the ", count, " tokens of the training part"), window);
  // One window fewer than fit, so that every start in [0, window) has the same number of them.
  windows_ = std::max<Index>(1, (count - 1) / window - 1);
}

TokenWindows::TokenWindows(text::TokenStream documents, Index window, std::uint64_t seed)
    : tokens_(std::move(documents.ids)),
      ranges_(text::cut_windows(documents.ends, window, /*lead=*/true)),
      window_(window),
      seed_(seed) {
  std::erase_if(ranges_, [](const text::TokenRange& range) { return range.length() < 2; });
  windows_ = static_cast<Index>(ranges_.size());
  HONE_CHECK(windows_ > 0, "training data", "documents of at least 2 tokens", tokens_.size());
}

text::TokenRange TokenWindows::range_of(Index sample) const {
  const auto epoch = static_cast<std::uint64_t>(sample / windows_);
  const Index window =
      data::permute(sample % windows_, windows_, draw(seed_, epoch, kWindowOrderStream));
  if (!ranges_.empty()) return ranges_[static_cast<std::size_t>(window)];
  const Index slack = static_cast<Index>(tokens_.size()) - 1 - windows_ * window_;
  const auto starts = static_cast<std::uint64_t>(std::min(slack, window_ - 1) + 1);
  const auto start = static_cast<Index>(draw(seed_, epoch, kStartStream) % starts);
  const Index begin = start + window_ * window;
  return {begin, begin + window_ + 1};
}

TokenBatch TokenWindows::batch(Index first_sample, Index count) const {
  std::vector<text::TokenRange> rows;
  for (Index row = 0; row < count; ++row) rows.push_back(range_of(first_sample + row));
  return batch_of(rows);
}

TokenBatch TokenWindows::longest() const {
  if (ranges_.empty()) return batch(0, 1);
  return batch_of({longest_range()});
}

text::TokenRange TokenWindows::longest_range() const {
  return *std::ranges::max_element(ranges_, {}, &text::TokenRange::length);
}

Index TokenWindows::longest_length() const {
  return ranges_.empty() ? window_ : longest_range().length() - 1;
}

TokenBatch TokenWindows::batch_of(const std::vector<text::TokenRange>& rows) const {
  const auto count = static_cast<Index>(rows.size());
  Index longest = 0;
  for (const text::TokenRange& row : rows) longest = std::max(longest, row.length() - 1);
  const auto options = torch::TensorOptions().dtype(torch::kLong);
  TokenBatch out{at::zeros({count, longest}, options), at::full({count, longest}, -1, options)};
  auto *ids = out.ids.data_ptr<std::int64_t>(), *targets = out.targets.data_ptr<std::int64_t>();
  for (const text::TokenRange& range : rows) {
    const text::TokenId* from = tokens_.data() + range.begin;
    std::copy_n(from, range.length() - 1, ids);
    std::copy_n(from + 1, range.length() - 1, targets);
    out.predicted += range.length() - 1;
    ids += longest;
    targets += longest;
  }
  return out;
}

}  // namespace hone::task
