// SPDX-License-Identifier: Apache-2.0
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/attention/kv_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/attention/kv_write.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/attention/kv_write-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(write_kv_rows);

void write_kv(const KvWriteArgs& args) {
  HONE_TRACE_ZONE("write_kv", {"rows", args.rows}, {"position", args.first_position});
  const KvLayout& layout = args.cache.layout;
  HONE_CHECK(is_kv_dtype(layout.dtype), "write_kv", "an f16, f32 or i8 cache",
             name_of(layout.dtype));
  HONE_CHECK(layout.head_dim > 0 && layout.head_dim <= 512, "write_kv", "a head_dim in 1…512",
             layout.head_dim);
  HONE_CHECK(
      0 <= args.head_begin && args.head_begin <= args.head_end && args.head_end <= layout.kv_heads,
      "write_kv", concat("a range of heads within ", layout.kv_heads), args.head_end);
  const Index needed = ceil_div(args.first_position + args.rows, kKvBlockTokens);
  HONE_CHECK(args.first_position >= 0 && args.rows >= 0 && args.cache.layer < layout.layers &&
                 needed <= static_cast<Index>(args.cache.blocks.size()),
             "write_kv", concat(needed, " blocks"), args.cache.blocks.size());
  HWY_DYNAMIC_DISPATCH(write_kv_rows)(args);
}

}  // namespace hone::kernels
#endif
