// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/layout_id.h"

#include <array>
#include <string_view>
#include <vector>

#include "hone/core/file/sha256.h"
#include "hone/kernels/gemm/packed_matrix.h"

namespace hone::kernels {
namespace {

constexpr Index kSampleRows = 17, kSampleCols = 256;  // two panels, the second one almost empty

constexpr std::array kBlockTypes = {
    GgufType::Q8_0, GgufType::Q4_0, GgufType::Q4_1, GgufType::Q5_0,   GgufType::Q5_1,
    GgufType::Q4_K, GgufType::Q5_K, GgufType::Q6_K, GgufType::IQ4_NL, GgufType::Q3_K};
constexpr std::array<std::string_view, 6> kSpecs = {"int8:row",         "int4:g32:sym:f16",
                                                    "int4:g32:asym",    "int3:g64:sym:f32",
                                                    "int6:g48:sym:f32", "log4:g32"};

// Bytes of which no two form an infinity or NaN of 16 bits, nor four one of 32.
std::vector<std::byte> sample(Index bytes) {
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>((i * 37 + 11) & 59);
  return out;
}

class Fingerprint {
 public:
  void add(const StoredMatrix& matrix) {
    for (const PackedMatrix& packed : {pack(matrix), pack_gate_up(matrix, matrix)}) {
      const auto bytes = packed.all_panels();
      text_ += sha256_hex(bytes);
    }
  }
  void add_dense(Dtype dtype) {
    const std::vector<std::byte> bytes = sample(kSampleRows * kSampleCols * bytes_of(dtype));
    add({.rows = kSampleRows, .cols = kSampleCols, .dtype = dtype, .bytes = bytes, .quant = {}});
  }
  void add_blocks(GgufType type) {
    const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(type), "layout");
    const std::vector<std::byte> bytes =
        sample(kSampleRows * kSampleCols / info.block * info.bytes);
    add({.layout = WeightLayout::GgufBlocks,
         .rows = kSampleRows,
         .cols = kSampleCols,
         .block_type = type,
         .bytes = bytes,
         .quant = {}});
  }
  void add_codes(std::string_view text) {
    const QuantSpec spec = parse_quant_spec(text);
    const Index groups = kSampleRows * spec.groups_per_row(kSampleCols);
    const std::vector<std::byte> codes = sample(kSampleRows * spec.code_bytes_per_row(kSampleCols)),
                                 scales = sample(groups * bytes_of(spec.scale_dtype)),
                                 zeros = sample(spec.symmetric ? 0 : groups);
    add({.layout = WeightLayout::Canonical,
         .rows = kSampleRows,
         .cols = kSampleCols,
         .bytes = {},
         .quant = {.spec = spec,
                   .rows = kSampleRows,
                   .cols = kSampleCols,
                   .codes = codes,
                   .scales = scales,
                   .zeros = zeros}});
  }
  std::string finish() const { return sha256_hex_of_text(text_).substr(0, 16); }

 private:
  std::string text_;
};

std::string compute_layout_id() {
  Fingerprint fingerprint;
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::BFloat16}) {
    fingerprint.add_dense(dtype);
  }
  for (const GgufType type : kBlockTypes) fingerprint.add_blocks(type);
  for (const std::string_view spec : kSpecs) fingerprint.add_codes(spec);
  return fingerprint.finish();
}

}  // namespace

const std::string& packed_layout_id() {
  static const std::string id = compute_layout_id();
  return id;
}

}  // namespace hone::kernels
