// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "hone/core/thread/thread_pool.h"
#include "hone/infer/engine.h"
#include "hone/model_io/tensor_plan.h"
#include "tests/model_io/tiny_families.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using hone::test::refusal;
using hone::test::tiny_families;
using testing::HasSubstr;

std::vector<std::vector<TokenId>> texts() {
  return {{1, 5, 9, 11, 30, 7, 7, 21, 40, 3, 17}, {1, 2}, {33}, {1, 40, 41, 42, 43, 44, 45, 46}};
}

class CaptureTest : public testing::TestWithParam<std::size_t> {
 protected:
  // Written as hone's artifact, which holds every trait.
  std::string write(const model_io::Architecture& architecture) {
    const hone::test::TinyModel tiny(architecture);
    const std::string path = (folder_.path() / "model").string();
    model_io::write_artifact(path, tiny.source());
    return path;
  }
  hone::test::TemporaryFolder folder_;
};

TEST_P(CaptureTest, a_walk_over_all_layers_gives_the_logits_of_the_engine) {
  const std::string path = write(tiny_families()[GetParam()]);
  EngineOptions options;
  options.executor = &serial_executor();
  options.need_tokenizer = false;
  const auto engine = Engine::open_or_throw(path, options);
  const auto model = hone::test::open_bare(path);
  ThreadPool pool(3);
  LayerWalk walk(*model, texts(), Activations::Int8, pool);
  for (Index layer = 0; layer < model->architecture().layers; ++layer) {
    walk.observe(layer, *model, [](Index, const float*, Index, Index) {});
    walk.advance(layer, *model);
  }
  Index first = 0;
  for (const auto& text : texts()) {
    if (text.size() > 1) {
      const HiddenStates states = engine->read(text);
      const auto want = engine->logits(states, 0, states.rows);
      const auto got = walk.logits(first, states.rows);
      ASSERT_TRUE(std::ranges::equal(got, want));
    }
    first += std::ssize(text);
  }
  EXPECT_EQ(walk.tokens(), first);
}

// The inputs times the weights of a product give the input of the next one, so two are enough: the
// product of the observed input of `down` is what the residual stream gains in the second half.
TEST_P(CaptureTest, observes_the_inputs_of_every_product_of_a_layer) {
  const auto architecture = tiny_families()[GetParam()];
  const auto model = hone::test::open_bare(write(architecture));
  LayerWalk walk(*model, texts(), Activations::Float32, serial_executor());
  for (Index layer = 0; layer < architecture.layers; ++layer) {
    const auto products = model_io::layer_products(architecture, layer);
    std::map<Index, Index> rows_of;
    std::vector<float> down;
    walk.observe(layer, *model, [&](Index product, const float* x, Index rows, Index cols) {
      ASSERT_EQ(cols, products[static_cast<std::size_t>(product)].inputs);
      rows_of[product] += rows;
      for (Index i = 0; i < rows * cols; ++i) ASSERT_TRUE(std::isfinite(x[i]));
      if (product == 3) down.insert(down.end(), x, x + rows * cols);
    });
    ASSERT_EQ(rows_of.size(), products.size());
    for (const auto& [product, rows] : rows_of) EXPECT_EQ(rows, walk.tokens());
    // Without `down`, the stream is what attention leaves; with it, plus down · input + bias.
    const std::vector<float> before(walk.hidden().begin(), walk.hidden().end());
    walk.advance(layer, *model);
    EXPECT_FALSE(std::ranges::equal(walk.hidden(), before));
    EXPECT_EQ(std::ssize(down), walk.tokens() * products[3].inputs);
  }
}

TEST_P(CaptureTest, can_return_to_an_earlier_layer) {
  const auto model = hone::test::open_bare(write(tiny_families()[GetParam()]));
  LayerWalk walk(*model, texts(), Activations::Int8, serial_executor());
  walk.advance(0, *model);
  const std::vector<float> second(walk.hidden().begin(), walk.hidden().end());
  walk.advance(1, *model);
  const std::vector<float> last(walk.hidden().begin(), walk.hidden().end());
  walk.set_hidden(second);
  walk.advance(1, *model);
  EXPECT_TRUE(std::ranges::equal(walk.hidden(), last));
  walk.restart();
  walk.advance(0, *model);
  EXPECT_TRUE(std::ranges::equal(walk.hidden(), second));
}

INSTANTIATE_TEST_SUITE_P(Traits, CaptureTest,
                         testing::Range<std::size_t>(0, tiny_families().size()));

TEST_F(CaptureTest, refuses_texts_that_the_model_cannot_read) {
  const auto model = hone::test::open_bare(write(hone::test::tiny_architecture()));
  const auto walk = [&](std::vector<std::vector<TokenId>> some) {
    LayerWalk(*model, std::move(some), Activations::Int8, serial_executor());
  };
  EXPECT_THAT(refusal([&] { walk({}); }), HasSubstr("no text"));
  EXPECT_THAT(refusal([&] { walk({{1}, {}}); }), HasSubstr("1 to 64 tokens"));
  EXPECT_THAT(refusal([&] { walk({std::vector<TokenId>(65, 1)}); }), HasSubstr("1 to 64 tokens"));
  EXPECT_THAT(refusal([&] { walk({{48}}); }), HasSubstr("48"));
}

}  // namespace
}  // namespace hone::infer
