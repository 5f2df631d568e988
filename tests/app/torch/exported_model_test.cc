// SPDX-License-Identifier: Apache-2.0
// A model that hone trained and exported, in other people's hands: transformers and llama.cpp.
#include <gtest/gtest.h>

#include <fstream>

#include "hone/app/convert.h"
#include "hone/app/torch/train_lm.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/philox.h"
#include "hone/infer/engine.h"
#include "hone/text/load_tokenizer.h"
#include "tests/app/llama_cpp_parity.h"
#include "tests/support/largest_error.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<infer::TokenId>;

// One short run of the story grammar for all tests of this file: grouped heads, a head size of its
// own, biases, untied embeddings, widths that fill whole blocks of 32.
class ExportedModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!test::missing_peer({"transformers", "torch"}).empty() &&
        !test::missing_peer({"llama_cpp"}).empty())
      return;
    folder_ = std::make_unique<test::TemporaryFolder>();
    TrainLmJob job;
    job.config.model = {.hidden_size = 64,
                        .intermediate_size = 96,
                        .layers = 2,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = 32,
                        .context = 96,
                        .tied_embeddings = false};
    job.config.data.stories = 1000;
    job.config.data.held_out_stories = 50;
    job.config.data.validation_tokens = 1024;
    job.config.trainer.steps = 150;
    job.config.trainer.validate_every = 0;
    job.out = folder_->path() / "run";
    job.threads = 1;
    model_ = train_lm(job).model;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::unique_ptr<test::TemporaryFolder> folder_;
  static fs::path model_;
};
std::unique_ptr<test::TemporaryFolder> ExportedModel::folder_;
fs::path ExportedModel::model_;

// Pieces that tokenizers disagree on, joined at random: words, digits, runs of white space,
// control characters, emoji with joiners, combining marks, right-to-left text, long words.
std::vector<std::string> varied_texts(std::size_t count) {
  const std::vector<std::string> pieces{"Lily",
                                        " the",
                                        " a little dog",
                                        ".",
                                        "\n\n",
                                        "  ",
                                        "   \t",
                                        "\r\n",
                                        "'s",
                                        "'LL",
                                        "don't",
                                        "1",
                                        "2024",
                                        " 3.14159",
                                        "0x1F",
                                        "\x01",
                                        "\x7f",
                                        "\x1b[0m",
                                        "\v\f",
                                        "é",
                                        "e\u0301",
                                        "naïve",
                                        "Straße",
                                        "ſ",
                                        "İ",
                                        "中文字",
                                        "한국어",
                                        "日本語",
                                        "привет",
                                        "שלום",
                                        "مرحبا",
                                        "हिन्दी",
                                        "😀",
                                        "👨\u200d👩\u200d👧",
                                        "🏳\ufe0f\u200d🌈",
                                        "\u00a0",
                                        "\u2003",
                                        "\u200b",
                                        "\ufeff",
                                        "\u0085",
                                        "<|endoftext|",
                                        "<s>",
                                        "</s>",
                                        "[UNK]",
                                        "##ing",
                                        "_",
                                        "--",
                                        "...",
                                        "\"",
                                        "\\n",
                                        "½",
                                        "Ⅷ",
                                        "٣",
                                        "ﬁ",
                                        "antidisestablishmentarianism",
                                        std::string(300, 'z'),
                                        std::string(70, ' ')};
  PhiloxStream random(17);
  std::vector<std::string> texts{"", " ", "\n", "a"};
  while (texts.size() < count) {
    std::string text;
    const std::uint32_t parts = 1 + random.below(12);
    for (std::uint32_t i = 0; i < parts; ++i)
      text += pieces[random.below(static_cast<std::uint32_t>(pieces.size()))];
    texts.push_back(text);
  }
  return texts;
}

// Sequences of a full context, random ids and the beginning of a story.
std::vector<Ids> sequences(const text::Tokenizer& tokenizer, Index context) {
  PhiloxStream random(5);
  std::vector<Ids> all;
  for (int i = 0; i < 4; ++i) {
    Ids& ids = all.emplace_back();
    for (Index t = 0; t < context; ++t)
      ids.push_back(static_cast<infer::TokenId>(
          random.below(static_cast<std::uint32_t>(tokenizer.vocab_size()))));
  }
  all.push_back(tokenizer.encode("Once there was a little dog. The dog was happy."));
  return all;
}

std::vector<float> read_floats(const fs::path& path) {
  std::vector<float> values(fs::file_size(path) / sizeof(float));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

// Logits of positions 1…; the last position of a sequence predicts nothing here.
struct LogitError : hone::test::LargestError {
  Index compared = 0;

  void add(infer::Engine& engine, const Ids& ids, std::span<const float> theirs) {
    const Index vocab = engine.info().architecture.vocab_size;
    engine.score(ids, {.on_logits = [&](Index first, Index, std::span<const float> ours) {
                   for (std::size_t i = 0; i < ours.size(); ++i) {
                     LargestError::add(ours[i],
                                       theirs[static_cast<std::size_t>((first - 1) * vocab) + i]);
                   }
                   compared += static_cast<Index>(ours.size());
                 }});
  }
};

TEST_F(ExportedModel, opens_with_transformers_with_the_same_ids_and_logits) {
  HONE_REQUIRE_PEER("transformers", "torch");
  const auto tokenizer = text::load_tokenizer_or_throw(model_);
  infer::EngineOptions options;
  options.executor = &serial_executor();
  options.kv = infer::KvDtype::Float32;
  options.activations = infer::Activations::Float32;
  const auto engine = infer::Engine::open_or_throw(model_, options);
  const auto texts = varied_texts(1000);
  const auto ids = sequences(*tokenizer, engine->info().context);
  const test::TemporaryFolder out;
  write_json_file(out.path() / "texts.json", {{"texts", texts}, {"ids", ids}});
  test::run_peer("tests/app/torch/transformers_open.py",
                 {model_.string(), (out.path() / "texts.json").string(), out.path().string()});
  const Json answer = read_json_file(out.path() / "answer.json");
  ASSERT_EQ(answer["ids"].size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Ids ours = tokenizer->encode(texts[i]);
    ASSERT_EQ(Json(ours), answer["ids"][i]) << Json(texts[i]).dump(-1, ' ', true);
    ASSERT_EQ(tokenizer->decode(ours), texts[i]);
    ASSERT_EQ(answer["decoded"][i], texts[i]);
  }
  const std::vector<float> logits = read_floats(out.path() / "logits.f32");
  LogitError error;
  std::size_t at = 0;
  for (const Ids& row : ids) {
    const auto count = row.size() * static_cast<std::size_t>(tokenizer->vocab_size());
    ASSERT_LE(at + count, logits.size());
    error.add(*engine, row, std::span(logits).subspan(at, count));
    at += count;
  }
  EXPECT_EQ(at, logits.size());
  EXPECT_GT(error.compared, 300 * tokenizer->vocab_size());
  std::printf("worst |logit error| / max |logit|: %.2e\n", error.relative());
  EXPECT_LE(error.relative(), 2e-4);
}

TEST_F(ExportedModel, quantized_gives_hones_greedy_text_in_llama_cpp_but_for_near_ties) {
  HONE_REQUIRE_PEER("llama_cpp");
  for (const char* type : {"q8_0", "q4_0"}) {
    ConvertOptions options;
    options.in = model_;
    options.out = folder_->path() / (std::string(type) + ".gguf");
    options.dtype = type;
    EXPECT_TRUE(convert_model(options)["kept"].empty());  // every matrix is quantized
    test::LlamaCppParity parity(options.out);
    parity.expect_logits_of(
        model_, {}, "Once there was a little dog. The dog was happy. One day, the dog saw a cat.",
        options.dtype == "q8_0" ? 0.03 : 0.3);
    parity.expect_same_text(
        {"Once upon a time", "There was a", "The dog", "One day", "Lily and Tom"}, 40);
  }
}

}  // namespace
}  // namespace hone::app
