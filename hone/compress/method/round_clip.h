// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/buffer.h"
#include "hone/core/format/quant_format.h"
#include "hone/core/thread/executor.h"

namespace hone::compress {

// A matrix in hone's canonical codes that owns its bytes.
struct QuantMatrix {
  QuantSpec spec;
  Index rows = 0, cols = 0;
  Buffer codes, scales, zeros;

  QuantMatrixView view() const;
  Index bytes() const { return codes.bytes() + scales.bytes() + zeros.bytes(); }
};

struct RoundOptions {
  bool clip = true;  // search for a clipping range; if false, only round to nearest
};

// Whether round_clip supports this spec: integer codes per row or group with f32 or f16 scales.
bool can_round(const QuantSpec& spec);

// Round to nearest with an optional clip search, per row or group (docs/compression.md):
//   symmetric  s = c max|w| / (2^(b-1) - 1), code = clamp(rne(w/s), ±(2^(b-1) - 1))
//   asymmetric range through 0: s = c (hi - lo) / (2^b - 1), z = clamp(rne(-c lo/s)),
//              code = clamp(rne(w/s) + z, 0, 2^b - 1)
// where c = 1 - i/40, i = 0…38, minimizes the squared error of the decoded group (the first minimum
// wins). The scale is rounded to its storage type before codes are computed. f16 scales are rounded
// up so that c = 1 never clips; a matrix with a scale outside f16's normal range gets f32 scales
// (see spec.scale_dtype of the result). values: [rows, cols] row-major. A value that is not finite
// throws Error{CorruptFile} that names `name` and its index. Results are bit-identical for any
// number of threads.
QuantMatrix round_clip(std::span<const float> values, Index rows, Index cols, const QuantSpec& spec,
                       const RoundOptions& options, Executor& executor, std::string_view name);

// 10 log10(sum w^2 / sum (w - decoded)^2) in dB; infinity if nothing was lost.
double signal_to_noise_db(std::span<const float> values, const QuantMatrixView& matrix);

}  // namespace hone::compress
