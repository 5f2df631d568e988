// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/quality/error_propagation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hone/compress/method/round.h"
#include "hone/compress/model.h"
#include "tests/compress/random_texts.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::compress {
namespace {

class Errors : public testing::Test {
 protected:
  Errors() {
    model_io::Architecture a = test::tiny_architecture();
    a.layers = 5;
    a.hidden_size = 96;
    a.intermediate_size = 128;
    const test::TinyModel tiny(a);
    model_io::write_artifact(folder_.path() / "model", tiny.source());
    original_ = test::open_bare(folder_.path() / "model");
    texts_ = random_texts(6, 30);
  }
  // Changes all matrices of some layers by rounding.
  Model changed(const std::vector<Index>& layers, const char* name) const {
    Model out(*original_);
    for (const Index layer : layers) {
      for (const model_io::NamedMatrix& tensor : original_->tensors()) {
        if (model_io::layer_of(tensor.name) != layer || role_of(tensor) != Role::Linear) continue;
        const std::vector<float> values = values_of(tensor.matrix);
        const WeightMatrix matrix{values, tensor.matrix.rows, tensor.matrix.cols, "w"};
        const auto format = parse_weight_format(name);
        const auto scales = fit_matrix(*format, matrix, {}, {}, serial_executor());
        out.replace(out.index_of(tensor.name),
                    round_matrix(*format, matrix, scales, serial_executor()), false);
      }
    }
    return out;
  }
  std::vector<LayerError> errors(const Model& model) const {
    return propagate_errors(*original_, model, texts_, serial_executor());
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<model_io::ModelFile> original_;
  std::vector<std::vector<text::TokenId>> texts_;
};

TEST_F(Errors, of_the_same_model_are_none) {
  for (const LayerError& error : errors(Model(*original_))) {
    EXPECT_EQ(error.local, 0);
    EXPECT_EQ(error.predicted, 0);
    EXPECT_EQ(error.measured, 0);
    EXPECT_EQ(error.bound, 0);
  }
}

TEST_F(Errors, begin_where_a_layer_changed_and_are_carried_on) {
  const auto found = errors(changed({2}, "int4:g32"));
  ASSERT_EQ(found.size(), 6u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(found[i].measured, 0) << i;
  EXPECT_GT(found[3].local, 0);
  EXPECT_NEAR(found[3].measured, found[3].local, 1e-12);
  EXPECT_NEAR(found[3].predicted, found[3].local, 1e-12);
  for (std::size_t i = 4; i < 6; ++i) {
    EXPECT_EQ(found[i].local, 0);
    EXPECT_GT(found[i].measured, 0);
  }
}

TEST_F(Errors, lie_below_the_bound_and_near_the_prediction) {
  for (const char* format : {"int8:row", "int5:g32", "int4:g32"}) {
    const auto found = errors(changed({0, 1, 2, 3, 4}, format));
    for (const LayerError& error : found) {
      EXPECT_LE(error.measured, error.bound * (1 + 1e-9)) << format;
      if (error.layer < 0) continue;
      EXPECT_LT(std::abs(std::log2(error.predicted / error.measured)), 1) << format;
    }
    EXPECT_GT(found.back().measured, found[1].measured);
  }
}

TEST_F(Errors, halve_with_each_bit) {
  const double five = errors(changed({1}, "int5:g32:sym")).back().measured,
               six = errors(changed({1}, "int6:g32:sym")).back().measured;
  EXPECT_NEAR(five / six, 2, 0.5);
}

}  // namespace
}  // namespace hone::compress
