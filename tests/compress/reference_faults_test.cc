// SPDX-License-Identifier: Apache-2.0
// Faults of a reference suite for compression, each as a test of what must be so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hone/compress/compress.h"
#include "hone/compress/method/round.h"
#include "hone/core/file/file_io.h"
#include "hone/measure/measure.h"
#include "tests/compress/random_texts.h"
#include "tests/model_io/tiny_families.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::compress {
namespace {

namespace fs = std::filesystem;

class ReferenceFaults : public testing::Test {
 protected:
  ReferenceFaults() : measurer_(measure::make_measurer()) { use(test::tiny_architecture()); }

  void use(const model_io::Architecture& architecture) {
    tiny_ = std::make_unique<test::TinyModel>(architecture);
    model_io::write_artifact(model_path(), tiny_->source());
    original_ = test::open_bare(model_path());
  }
  fs::path model_path() const { return folder_.path() / "model"; }
  Result run(const PassOptions& pass) {
    Recipe recipe;
    recipe.gate.on_fail = OnFail::Keep;
    recipe.passes = {pass};
    Context context{.executor = serial_executor(), .measurer = *measurer_, .quality = {}};
    context.calibration = random_texts(3);
    return compress(*original_, recipe, context);
  }
  // The bytes of the weights' file of a model.
  Index file_bytes(const model_io::ModelFile& model) const {
    const fs::path path = folder_.path() / "written";
    model_io::write_artifact(
        path, {.architecture = model.architecture(), .tensors = model.tensors(), .file = &model});
    return static_cast<Index>(fs::file_size(path / "model.safetensors"));
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<Measurer> measurer_;
  std::unique_ptr<test::TinyModel> tiny_;
  std::unique_ptr<model_io::ModelFile> original_;
};

const std::vector<PassOptions>& every_pass() {
  static const std::vector<PassOptions> kAll{
      QuantizePass{.spec = "int8:row"},
      QuantizePass{.spec = "int4:g16", .rounding = Rounding::Gptq},
      QuantizePass{.spec = "log4:row"},
      PrunePass{.saliency = Saliency::Magnitude},
      PrunePass{.saliency = Saliency::Wanda},
      PrunePass{.saliency = Saliency::SparseGpt},
      StructurePass{.part = Part::Ffn, .round_to = 4},
      StructurePass{.part = Part::Heads, .ratio = 0.5},
      StructurePass{.part = Part::Layers, .ratio = 0.5},
      LowRankPass{.rank = 16}};
  return kAll;
}

// The suite overwrote the model that it was given, or quantized a new one with random weights.
TEST_F(ReferenceFaults, the_original_stays_as_it_was_and_the_copy_is_made_of_it) {
  const std::string before = read_text_file(model_path() / "model.safetensors");
  for (const PassOptions& pass : every_pass()) {
    const Result result = run(pass);
    EXPECT_EQ(result.passes[0].status, Status::Applied) << result.passes[0].reason;
    EXPECT_EQ(read_text_file(model_path() / "model.safetensors"), before);
    const std::string norm = "model.norm.weight";
    EXPECT_EQ(test::decoded(result.model.tensor(norm)), test::decoded(original_->tensor(norm)));
  }
}

// It reported a ratio of 1.0, or left packed weights out of the bytes.
TEST_F(ReferenceFaults, bytes_are_those_of_the_file) {
  const Index before = file_bytes(*original_);
  for (const PassOptions& pass : every_pass()) {
    const Result result = run(pass);
    const PassRecord& record = result.passes[0];
    const Index saved = record.bytes_before - record.bytes_after;
    EXPECT_GT(saved, 0) << record.name;
    EXPECT_NEAR(static_cast<double>(before - file_bytes(result.model)) / static_cast<double>(saved),
                1, 0.15)
        << record.name;
  }
}

// A constant tensor divided 0 by 0.
TEST_F(ReferenceFaults, constant_matrices_keep_their_value) {
  for (const char* name : {"int8:row", "int4:g32", "int3:tensor", "int2:g16", "log4:row", "q4_0",
                           "q8_0", "q5_1", "iq4_nl"}) {
    const auto format = parse_weight_format(name);
    for (const float value : {0.0f, 3.0f, -0.25f}) {
      const std::vector<float> values(4 * 64, value);
      const WeightMatrix matrix{values, 4, 64, "w"};
      const auto scales = fit_matrix(*format, matrix, {}, {}, serial_executor());
      const EncodedMatrix out = round_matrix(*format, matrix, scales, serial_executor());
      for (const float got : values_of(out.stored))
        EXPECT_NEAR(got, value, 0.02 * std::abs(value)) << name;
    }
  }
}

// Its logarithmic codes did not count the sign bit and had no zero.
TEST_F(ReferenceFaults, logarithmic_codes_have_exactly_b_bits_a_sign_and_a_zero) {
  for (int bits = 2; bits <= 8; ++bits) {
    const auto format = parse_weight_format("log" + std::to_string(bits) + ":row");
    EXPECT_EQ(std::ssize(format->levels()), (1 << bits) - 1);
    EXPECT_EQ(std::ranges::count(format->levels(), 0.0f), 1);
    EXPECT_NEAR(format->bits_per_weight(1, 1 << 20), bits, 1e-3);
    for (const float level : format->levels()) {
      int exponent = 0;
      if (level != 0) {
        EXPECT_EQ(std::abs(std::frexp(level, &exponent)), 0.5f);
      }
    }
  }
}

// Other widths became fp16 without a word.
TEST_F(ReferenceFaults, widths_that_do_not_exist_are_errors) {
  for (const char* name : {"int1:row", "int9:row", "int16:row", "log9:row", "dynamic", "uniform"})
    EXPECT_THAT(hone::test::refusal([&] { parse_quantize_option(name); }),
                testing::HasSubstr("int<2-8>"));
}

// Gradient pruning was inverted: 0.2 removed 0.8. Here each method removes what it is asked for.
TEST_F(ReferenceFaults, pruning_removes_the_fraction_asked_for) {
  for (const double sparsity : {0.2, 0.5, 0.8}) {
    for (const Saliency saliency : {Saliency::Magnitude, Saliency::Wanda, Saliency::SparseGpt}) {
      const Result result = run(PrunePass{.saliency = saliency, .sparsity = sparsity});
      for (const Json& row : result.passes[0].evidence) {
        const auto all = row["original_params"].get<double>();
        const double rows = row["shape"][0].get<double>();
        const double slack = saliency == Saliency::Wanda ? 0.5 * rows : 1;  // a row is rounded
        EXPECT_NEAR(all - row["remaining_params"].get<double>(), sparsity * all, slack)
            << name_of(saliency);
      }
    }
    const Result global =
        run(PrunePass{.saliency = Saliency::Magnitude, .sparsity = sparsity, .global = true});
    const Json& counts = global.passes[0].statistics;
    EXPECT_EQ(counts["original_params"].get<Index>() - counts["remaining_params"].get<Index>(),
              std::llround(sparsity * counts["original_params"].get<double>()));
  }
}

// Structured pruning set rows to 0, vocabulary and residual outputs included, and left the next
// layer as it was.
TEST_F(ReferenceFaults, structured_pruning_removes_what_makes_and_what_reads_a_part) {
  const Result result = run(StructurePass{.part = Part::Ffn, .ratio = 0.5, .round_to = 1});
  for (const char* part : {"mlp.gate_proj.weight", "mlp.up_proj.weight"})
    EXPECT_EQ(result.model.tensor(model_io::layer_name(0, part)).matrix.rows, 20);
  EXPECT_EQ(result.model.tensor(model_io::layer_name(0, "mlp.down_proj.weight")).matrix.cols, 20);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
    EXPECT_TRUE(result.model.is_original(result.model.index_of(name)));
  for (const model_io::NamedMatrix& tensor : result.model.tensors()) {
    if (role_of(tensor) != Role::Linear) continue;
    EXPECT_LT(std::ranges::count(test::decoded(tensor), 0.0f), 3) << tensor.name;
  }
}

// Embeddings and the head were pruned by default, and biases that are 0 counted as pruned.
TEST_F(ReferenceFaults, only_weights_of_layers_are_pruned_and_counted) {
  for (const model_io::Architecture& architecture : test::tiny_families()) {
    if (!architecture.mlp_bias) continue;
    use(architecture);
    const Result result = run(PrunePass{.saliency = Saliency::Magnitude});
    Index weights = 0;
    for (const model_io::NamedMatrix& tensor : original_->tensors()) {
      if (role_of(tensor) == Role::Linear) weights += tensor.matrix.rows * tensor.matrix.cols;
      const Index at = result.model.index_of(tensor.name);
      EXPECT_EQ(result.model.is_original(at), role_of(tensor) != Role::Linear) << tensor.name;
    }
    EXPECT_EQ(result.passes[0].statistics["original_params"], weights);
  }
}

}  // namespace
}  // namespace hone::compress
