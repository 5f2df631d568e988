// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/rope.h"

#include <cmath>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/attention/rope.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/attention/rope-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(rope_rows);

void apply_rope(const RopeArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("rope", {"rows", args.rows}, {"heads", args.heads});
  HONE_CHECK(args.dims >= 0 && args.dims % 2 == 0 && args.dims <= args.head_dim, "rope",
             concat("an even number of dims up to ", args.head_dim), args.dims);
  HONE_CHECK(args.positions > 0, "rope", "positions > 0", args.positions);
  const Index width = args.heads * args.head_dim;
  HONE_CHECK(args.rows >= 0 && args.heads >= 0 && args.x_stride >= width && args.y_stride >= width,
             "rope", concat("rows at least ", width, " apart"),
             concat(args.x_stride, " and ", args.y_stride));
  executor.parallel_for(args.rows, rows_per_chunk(width), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(rope_rows)(args, begin, end);
  });
}

void fill_rope_tables(std::span<const double> inverse, double factor, Index first_position,
                      std::span<float> cosine, std::span<float> sine) {
  const bool whole = inverse.empty() ? cosine.empty() : cosine.size() % inverse.size() == 0;
  HONE_CHECK(cosine.size() == sine.size() && whole, "rope",
             concat("two tables of whole rows of ", inverse.size()),
             concat(cosine.size(), " and ", sine.size()));
  std::size_t at = 0;
  for (Index position = first_position; at < cosine.size(); ++position) {
    for (const double frequency : inverse) {
      const double angle = static_cast<double>(position) * frequency;
      cosine[at] = static_cast<float>(std::cos(angle) * factor);
      sine[at] = static_cast<float>(std::sin(angle) * factor);
      ++at;
    }
  }
}

}  // namespace hone::kernels
#endif
