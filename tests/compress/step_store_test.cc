// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/step_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/compress/compress.h"
#include "hone/compress/method/layer_pass.h"
#include "hone/compress/method/round.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/sha256.h"
#include "hone/measure/measure.h"
#include "hone/model_io/write_model.h"
#include "tests/compress/random_texts.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::compress {
namespace {

namespace fs = std::filesystem;

class Steps : public testing::Test {
 protected:
  Steps() : measurer_(measure::make_measurer()) {
    model_io::Architecture a = test::tiny_architecture();
    a.layers = 4;
    const test::TinyModel tiny(a);
    model_io::write_artifact(folder_.path() / "model", tiny.source());
    original_ = test::open_bare(folder_.path() / "model");
  }
  fs::path steps() const { return folder_.path() / "out.resume"; }
  Context context(StepStore& store) {
    Context context{.executor = serial_executor(), .measurer = *measurer_, .quality = {}};
    context.calibration = random_texts(4);
    context.steps = &store;
    return context;
  }
  std::string write(const Model& model) {
    const fs::path path = folder_.path() / "small";
    model_io::write_artifact(
        path, {.architecture = model.architecture(), .tensors = model.tensors(), .file = &model});
    return read_text_file(path / "model.safetensors") + read_text_file(path / "config.json");
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<Measurer> measurer_;
  std::unique_ptr<model_io::ModelFile> original_;
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

// A run whose last steps are missing, as after a kill, makes the same model, with the same
// evidence.
TEST_F(Steps, every_kind_of_pass_continues_to_the_same_bytes) {
  const std::vector<std::vector<PassOptions>> recipes{
      {QuantizePass{.spec = "int4:g16", .rounding = Rounding::Gptq}},
      {QuantizePass{.spec = "q4_0"}},
      {PrunePass{.saliency = Saliency::Magnitude, .global = true}},
      {PrunePass{.saliency = Saliency::SparseGpt}, QuantizePass{.spec = "int8:row"}},
      {StructurePass{.part = Part::Ffn, .round_to = 4},
       QuantizePass{.spec = "log4:g16", .rounding = Rounding::Importance}},
      {StructurePass{.part = Part::Heads, .ratio = 0.5}},
      {StructurePass{.part = Part::Layers}, QuantizePass{.spec = "q4_0"}}};
  for (const auto& passes : recipes) {
    Recipe recipe;
    recipe.gate.on_fail = OnFail::Keep;
    recipe.passes = passes;
    const Result made = [&] {
      StepStore whole(steps(), "run");
      Context first = context(whole);
      return compress(*original_, recipe, first);
    }();
    const std::string bytes = write(made.model);
    const std::vector<fs::path> saved = files_in(steps());
    ASSERT_GT(saved.size(), 1u);
    for (std::size_t left = 0; left < saved.size(); ++left) {
      for (std::size_t i = left; i < saved.size(); ++i)
        if (saved[i].filename().string().starts_with("pass")) fs::remove(saved[i]);
      StepStore again(steps(), "run");
      Context second = context(again);
      const Result resumed = compress(*original_, recipe, second);
      EXPECT_EQ(write(resumed.model), bytes);
      for (std::size_t p = 0; p < passes.size(); ++p) {
        EXPECT_EQ(resumed.passes[p].evidence, made.passes[p].evidence);
        EXPECT_EQ(resumed.passes[p].bytes_after, made.passes[p].bytes_after);
      }
    }
    StepStore(steps(), "run").finish();
    EXPECT_FALSE(fs::exists(steps()));
  }
}

TEST_F(Steps, uses_saved_steps_instead_of_making_them_again) {
  Recipe recipe;
  recipe.gate.on_fail = OnFail::Keep;
  recipe.passes = {QuantizePass{.spec = "q8_0", .rounding = Rounding::Gptq}};
  StepStore store(steps(), "run");
  Context own = context(store);
  const Result made = compress(*original_, recipe, own);
  // A layer of the first run shows up in one with another format.
  recipe.passes = {QuantizePass{.spec = "q4_0", .rounding = Rounding::Gptq}};
  for (const char* layer : {"0", "2", "3"})
    fs::remove(steps() / (std::string("pass0-layer") + layer + ".safetensors"));
  const Result mixed = compress(*original_, recipe, own);
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  EXPECT_EQ(test::decoded(mixed.model.tensor(name)), test::decoded(made.model.tensor(name)));
  const std::string other = "model.layers.2.self_attn.q_proj.weight";
  EXPECT_NE(test::decoded(mixed.model.tensor(other)), test::decoded(made.model.tensor(other)));
}

TEST_F(Steps, of_another_run_are_dropped_and_other_folders_are_left_alone) {
  StepStore(steps(), "one").save_text("pass0-note", "x");
  EXPECT_EQ(StepStore(steps(), "one").text("pass0-note"), "x");
  EXPECT_EQ(StepStore(steps(), "two").text("pass0-note"), std::nullopt);
  const fs::path mine = folder_.path() / "mine";
  fs::create_directory(mine);
  write_text_file(mine / "letter.txt", "dear");
  EXPECT_THAT(hone::test::refusal([&] { StepStore(mine, "one"); }),
              testing::HasSubstr("something else"));
  EXPECT_EQ(read_text_file(mine / "letter.txt"), "dear");
}

TEST_F(Steps, are_of_one_run_at_a_time) {
  const StepStore first(steps(), "one");
  for (const char* key : {"one", "two"})
    EXPECT_THAT(hone::test::refusal([&] { StepStore(steps(), key); }, ErrorCategory::Resource),
                testing::HasSubstr("Another run"));
}

// A pass that a gate rejected is not judged again, even if the machine is faster now.
TEST_F(Steps, keep_what_gates_decided) {
  Recipe recipe;
  recipe.gate.min_speedup = 1e6;
  recipe.passes = {QuantizePass{.spec = "int4:g16", .apply = {"*mlp*"}},
                   QuantizePass{.spec = "int8:row"}};
  StepStore store(steps(), "run");
  Context own = context(store);
  const Result first = compress(*original_, recipe, own);
  EXPECT_EQ(first.passes[0].status, Status::Skipped);
  recipe.gate.min_speedup = 0;
  const Result second = compress(*original_, recipe, own);
  EXPECT_EQ(second.passes[0].status, Status::Skipped);
  EXPECT_EQ(second.passes[0].reason, first.passes[0].reason);
  EXPECT_EQ(second.passes[0].speedup.ratio, first.passes[0].speedup.ratio);
}

// A flipped bit in a weight is found by the hash alone. If the hash matches and the file still
// cannot be read, it is not a step.
TEST_F(Steps, that_are_damaged_are_made_again_or_refused_by_name) {
  StepStore store(steps(), "run");
  Recipe recipe;
  recipe.gate.on_fail = OnFail::Keep;
  recipe.passes = {QuantizePass{.spec = "int4:g16"}};
  Context own = context(store);
  const std::string made = write(compress(*original_, recipe, own).model);
  const fs::path step = steps() / "pass0-layer0.safetensors";
  const std::string good = read_text_file(step);
  std::string flipped = good;
  flipped[good.size() - 5] = static_cast<char>(good[good.size() - 5] ^ 16);
  for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), std::string("{}"),
                                 std::string(good.size(), 'x'), flipped}) {
    write_text_file(step, bad);
    testing::internal::CaptureStderr();
    const std::string again = write(compress(*original_, recipe, own).model);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("is damaged"));
    EXPECT_EQ(again, made);
    if (bad == flipped) continue;
    write_text_file(step, bad);
    write_text_file(steps() / "pass0-layer0.sha256", sha256_hex_of_text(bad));
    EXPECT_THAT(
        hone::test::refusal([&] { compress(*original_, recipe, own); }, ErrorCategory::CorruptFile),
        testing::HasSubstr("pass0-layer0"));
    fs::remove(step);
  }
}

}  // namespace
}  // namespace hone::compress
