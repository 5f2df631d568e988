// SPDX-License-Identifier: Apache-2.0
// Every argument that a product, a pack or a row packer refuses, and the sentence it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/kernels/gemm/variant.h"
#include "tests/kernels/gemm/weight_support.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using test::make_weight;
using test::TestWeight;
using testing::AllOf;
using testing::HasSubstr;
using Values = std::vector<float>;

// A product of three rows that every case spoils in one place.
struct Product {
  explicit Product(const char* format = "f32", bool gated = false)
      : a(make_weight(format, 20, 64, 1)),
        b(make_weight(format, 20, 64, 2)),
        weight(gated ? pack_gate_up(a.stored(), b.stored()) : pack(a.stored())) {
    interleave_rows(x.data(), 3, 64, 64, rows, serial_executor());
    output.weight = &weight;
    output.y = y.data();
    output.y_stride = 20;
    if (gated) output.epilogue.activation = Activation::SiluGate;
  }
  std::string sentence() {
    return error_of([&] {
      gemm({.x = rows, .outputs = {&output, 1}, .executor = serial_executor()});
    });
  }
  TestWeight a, b;
  PackedMatrix weight;
  Values x = Values(200, 1.0f), y = Values(100, -7.0f);
  PackedRows rows;
  GemmOutput output;
};

TEST(GemmRefuses, null_weights_and_outputs) {
  Product p;
  p.output.weight = nullptr;
  EXPECT_THAT(p.sentence(), HasSubstr("[gemm] The weight or the output is null."));
  EXPECT_THAT(error_of([&] { gemm(p.x.data(), 1, 64, p.output, serial_executor()); }),
              HasSubstr("[gemm] The weight is null."));
  p.output.weight = &p.weight;
  p.output.y = nullptr;
  EXPECT_THAT(p.sentence(), HasSubstr("The weight or the output"));
}

TEST(GemmRefuses, shapes_that_disagree) {
  Product p;
  interleave_rows(p.x.data(), 3, 63, 63, p.rows, serial_executor());
  EXPECT_THAT(p.sentence(), HasSubstr("x of 64 columns, got 63"));
  EXPECT_THAT(error_of([&] { gemm_ref(p.rows, p.output); }),
              HasSubstr("[gemm_ref] expected x of 64 columns, got 63"));
  interleave_rows(p.x.data(), 3, 64, 64, p.rows, serial_executor());
  p.output.y_stride = 19;
  EXPECT_THAT(p.sentence(), HasSubstr("an output stride of at least 20, got 19"));
  p.output.y_stride = 20;
  p.output.epilogue = {.residual = p.y.data(), .residual_stride = 19};
  EXPECT_THAT(p.sentence(), HasSubstr("a residual stride of at least 20, got 19"));
  EXPECT_EQ(p.y, Values(100, -7.0f)) << "refused before anything was written";
}

TEST(GemmRefuses, no_stride_for_a_single_row) {
  Product p;
  interleave_rows(p.x.data(), 1, 64, 0, p.rows, serial_executor());
  p.output.y_stride = 0;
  p.output.epilogue = {.residual = p.y.data(), .residual_stride = 0};
  EXPECT_EQ(p.sentence(), "no error");
  EXPECT_NE(p.y[19], -7);
  EXPECT_EQ(p.y[20], -7);
}

TEST(GemmRefuses, int8_activations_for_dense_weights) {
  for (const char* format : {"f32", "f16", "bf16"}) {
    Product p(format);
    quantize_rows(p.x.data(), 3, 64, 64, p.rows, serial_executor());
    EXPECT_THAT(p.sentence(), HasSubstr(concat("expected f32 activations, got int8 for ", format)));
  }
}

TEST(GemmRefuses, a_gate_without_gate_weights_and_the_reverse) {
  Product plain, gated("q4_0", true);
  plain.output.epilogue.activation = Activation::SiluGate;
  EXPECT_THAT(plain.sentence(),
              HasSubstr("gated activation and a gate-up weight require each other"));
  gated.output.epilogue.activation = Activation::None;
  EXPECT_THAT(gated.sentence(), HasSubstr("require each other"));
}

TEST(GemmRefuses, nothing_where_there_is_nothing_to_do) {
  Product p;
  gemm({.x = p.rows, .outputs = {}, .executor = serial_executor()});
  PackedRows none;
  interleave_rows(nullptr, 0, 64, 64, none, serial_executor());
  gemm({.x = none, .outputs = {&p.output, 1}, .executor = serial_executor()});
  quantize_rows(nullptr, 0, 64, 64, none, serial_executor());
  EXPECT_EQ(none.rows(), 0);
  EXPECT_EQ(p.y, Values(100, -7.0f));
}

TEST(PackedRowsRefuse, sizes_strides_and_rows_out_of_range) {
  PackedRows rows;
  const Values x(64);
  for (const auto& [pack_rows, name] : {std::pair{&quantize_rows, "quantize_rows"},
                                        std::pair{&interleave_rows, "interleave_rows"}}) {
    const auto sentence = [&, pack = pack_rows](Index count, Index cols, Index stride) {
      return error_of([&] { pack(x.data(), count, cols, stride, rows, serial_executor()); });
    };
    EXPECT_THAT(sentence(-1, 8, 8),
                HasSubstr(concat("[", name, "] expected sizes >= 0, got [-1, 8]")));
    EXPECT_THAT(sentence(1, -8, 8), HasSubstr("got [1, -8]"));
    EXPECT_THAT(sentence(2, 8, 7), HasSubstr("a stride of at least 8, got 7"));
    EXPECT_EQ(sentence(1, 8, 0), "no error");
    EXPECT_EQ(sentence(2, 8, 8), "no error");
    Values out(8);
    EXPECT_THAT(error_of([&] { rows.unpack_row(2, out); }),
                HasSubstr("[unpack_row] expected a row below 2, got 2"));
    EXPECT_THAT(error_of([&] { rows.unpack_row(-1, out); }), HasSubstr("got -1"));
    EXPECT_THAT(error_of([&] { rows.unpack_row(0, std::span(out).first(7)); }),
                HasSubstr("8 values, got 7"));
  }
}

TEST(PackedMatrixRefuses, rows_and_sizes_out_of_range_when_unpacked) {
  const PackedMatrix plain = pack(make_weight("q8_0", 5, 32, 1).stored());
  const PackedMatrix gated =
      pack_gate_up(make_weight("q8_0", 5, 32, 1).stored(), make_weight("q8_0", 5, 32, 2).stored());
  Values out(32);
  EXPECT_THAT(error_of([&] { plain.unpack_row(5, out); }),
              HasSubstr("[unpack_row] expected a row of the matrix, got 5"));
  EXPECT_THAT(error_of([&] { plain.unpack_row(-1, out); }), HasSubstr("got -1"));
  EXPECT_THAT(error_of([&] { plain.unpack_row(0, std::span(out).first(31)); }),
              HasSubstr("32 values, got 31"));
  gated.unpack_row(9, out);  // up rows follow the gate's
  EXPECT_THAT(error_of([&] { gated.unpack_row(10, out); }), HasSubstr("got 10"));
}

std::string pack_error(const StoredMatrix& stored) {
  return error_of([&] { pack(stored); });
}

TEST(PackRefuses, matrices_whose_parts_disagree) {
  const TestWeight dense = make_weight("f16", 4, 32, 1), codes = make_weight("int4:g32", 4, 64, 1);
  StoredMatrix matrix = dense.stored();
  matrix.rows = -4;
  EXPECT_THAT(pack_error(matrix), HasSubstr("[pack] expected sizes >= 0, got [-4, 32]"));
  matrix = dense.stored();
  matrix.cols = 31;
  EXPECT_THAT(pack_error(matrix), HasSubstr("248 bytes, got 256"));
  matrix = dense.stored();
  matrix.dtype = Dtype::Int32;
  EXPECT_THAT(pack_error(matrix), HasSubstr("512 bytes, got 256"));
  matrix = dense.stored();
  matrix.rows = std::numeric_limits<Index>::max() / 2;
  EXPECT_THAT(pack_error(matrix), HasSubstr("[pack]"));
  matrix = codes.stored();
  matrix.rows = 3;
  EXPECT_THAT(pack_error(matrix), HasSubstr("codes of [3, 64], got [4, 64]"));
}

TEST(PackRefuses, integers_stored_as_a_dense_matrix) {
  const std::vector<std::byte> bytes(4 * 32 * 4);
  StoredMatrix matrix;
  matrix.rows = 4;
  matrix.cols = 32;
  matrix.dtype = Dtype::Int32;
  matrix.bytes = bytes;
  EXPECT_THAT(pack_error(matrix), HasSubstr("[pack] expected a floating-point matrix, got i32"));
}

TEST(PackRefuses, dense_types_as_blocks_and_broken_blocks) {
  const TestWeight weight = make_weight("q8_0", 4, 64, 1);
  StoredMatrix matrix = weight.stored();
  matrix.block_type = GgufType::F16;
  const std::vector<std::byte> bytes(4 * 64 * 2);
  matrix.bytes = bytes;
  EXPECT_THAT(pack_error(matrix), HasSubstr("[pack] expected a type of quantized blocks, got F16"));
  matrix = weight.stored();
  matrix.rows = 8;
  matrix.cols = 16;
  const std::vector<std::byte> half(4 * 34);
  matrix.bytes = half;
  EXPECT_THAT(pack_error(matrix), HasSubstr("a multiple of 32 columns for Q8_0, got 16"));
}

TEST(PackRefuses, gate_and_up_that_differ) {
  const TestWeight gate = make_weight("q8_0", 4, 64, 1), rows = make_weight("q8_0", 5, 64, 1);
  const TestWeight cols = make_weight("q8_0", 4, 96, 1), format = make_weight("q4_0", 4, 64, 1);
  const auto sentence = [&](const TestWeight& up) {
    return error_of([&] { pack_gate_up(gate.stored(), up.stored()); });
  };
  EXPECT_THAT(sentence(rows), HasSubstr("[pack_gate_up] expected up of [4, 64], got [5, 64]"));
  EXPECT_THAT(sentence(cols), HasSubstr("got [4, 96]"));
  EXPECT_THAT(sentence(format), HasSubstr("Gate and up have different formats"));
}

// HONE_FORCE_KERNEL while the object lives.
class Forced {
 public:
  explicit Forced(const std::string& value) { ::setenv("HONE_FORCE_KERNEL", value.c_str(), 1); }
  Forced(const Forced&) = delete;
  ~Forced() { ::unsetenv("HONE_FORCE_KERNEL"); }
};

TEST(GemmVariants, each_operation_has_a_name_and_unknown_kernels_are_listed) {
  struct Case {
    const char *format, *op;
    Act act;
    const char* known;
  };
  for (const Case& c :
       {Case{"f32", "gemm_f32", Act::Float32, "highway plain"},
        Case{"f16", "gemm_f16", Act::Float32, "highway plain"},
        Case{"bf16", "gemm_bf16", Act::Float32, "highway plain"},
        Case{"q8_0", "gemm_q8_f32", Act::Float32, "highway plain"},
        Case{"q4_0", "gemm_q4_f32", Act::Float32, "highway plain"},
        Case{"q8_0", "gemm_q8", Act::Int8, "plain"}, Case{"q4_0", "gemm_q4", Act::Int8, "plain"}}) {
    const PackedMatrix weight = pack(make_weight(c.format, 16, 32, 1).stored());
    {
      const Forced forced(concat(c.op, ":quickest"));
      EXPECT_THAT(error_of([&] { gemm_kernel_name(weight, c.act); }),
                  AllOf(HasSubstr("[HONE_FORCE_KERNEL]"), HasSubstr(concat(c.op, ": one of")),
                        HasSubstr(c.known), HasSubstr(concat("got ", c.op, ":quickest"))));
    }
    {
      const Forced forced(concat(c.op, ":plain"));
      EXPECT_EQ(gemm_kernel_name(weight, c.act), "plain");
    }
    const std::string usual = gemm_kernel_name(weight, c.act);
    const Forced other("multi_tensor:ref");  // another operation's wish is not ours
    EXPECT_EQ(gemm_kernel_name(weight, c.act), usual);
  }
}

#if defined(__x86_64__)
TEST(GemmVariants, a_kernel_that_the_machine_lacks_is_unsupported) {
  const PackedMatrix weight = pack(make_weight("q8_0", 16, 32, 1).stored());
  for (const Isa isa : {Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Avx512Vnni, Isa::Amx}) {
    const Forced forced(concat("gemm_q8:", name_of(isa)));
    const std::string sentence = error_of([&] { gemm_kernel_name(weight, Act::Int8); });
    if (isa_enabled(isa)) {
      EXPECT_EQ(sentence, "no error");
      EXPECT_EQ(gemm_kernel_name(weight, Act::Int8), name_of(isa));
    } else {
      EXPECT_THAT(sentence,
                  HasSubstr(concat("[gemm_q8] expected a processor (and --force-isa) with ",
                                   name_of(isa))));
      EXPECT_THAT(sentence, HasSubstr(concat("got ", name_of(best_isa()), " on ")));
    }
  }
}
#endif

}  // namespace
}  // namespace hone::kernels
