// SPDX-License-Identifier: Apache-2.0
// What `hone convert` writes, read by llama.cpp. HONE_PEER_PYTHON names a Python that has it.
#include "tests/app/llama_cpp_parity.h"

#include <set>

#include "hone/app/convert.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

TEST(LlamaCpp, quantized_stories_give_hones_greedy_text_but_for_near_ties) {
  HONE_REQUIRE_PEER("llama_cpp");
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(tokenizer, "lm/tok512.bin");
  HONE_REQUIRE_TEST_DATA(expected, "lm/stories260K.expected.json");
  const test::TemporaryFolder folder;
  for (const char* type : {"q8_0", "q4_0"}) {
    ConvertOptions options;
    options.in = model;
    options.out = folder.path() / (std::string(type) + ".gguf");
    options.dtype = type;
    options.tokenizer = tokenizer;
    convert_model(options);
    test::LlamaCppParity parity(options.out);
    const Json known = read_json_file(expected)["cases"][0];
    parity.expect_logits_of(model, tokenizer,
                            known["prompt"].get<std::string>() + known["text"].get<std::string>(),
                            options.dtype == "q8_0" ? 0.03 : 0.3);
    parity.expect_same_text({"Once upon a time", "The little dog", "Lily and Ben went to the park",
                             "One day, a bird saw", "Tom had a red ball. "},
                            40);
  }
}

// A llama whose rows are 256 long or a multiple, with weights that keep activations near 1.
void write_random_llama(const std::filesystem::path& path) {
  model_io::Architecture a = test::tiny_architecture();
  a.hidden_size = 256;
  a.intermediate_size = 512;
  a.head_dim = a.rope.rotary_dims = 64;
  const test::TinyModel model(a);
  std::deque<std::vector<float>> values;
  std::vector<model_io::NamedMatrix> tensors = model.tensors();
  for (model_io::NamedMatrix& tensor : tensors) {
    std::vector<float>& scaled = values.emplace_back(test::decoded(tensor));
    for (float& value : scaled) value = tensor.is_vector ? 1.0f : value / 10;
    tensor.matrix.bytes = std::as_bytes(std::span(scaled));
  }
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(a.vocab_size));
  model_io::write_gguf(path, {a, tensors, tokenizer.get(), Json::object()});
}

TEST(LlamaCpp, its_own_quantized_types_give_hones_greedy_text_but_for_near_ties) {
  HONE_REQUIRE_PEER("llama_cpp");
  const test::TemporaryFolder folder;
  const auto original = folder.path() / "f32.gguf";
  write_random_llama(original);
  std::set<GgufType> met;
  for (const char* type :
       {"Q4_K_M", "Q5_K_M", "Q6_K", "Q4_1", "Q5_0", "Q5_1", "Q3_K_M", "IQ4_NL"}) {
    const auto path = folder.path() / (std::string(type) + ".gguf");
    test::run_peer("tests/support/llama_cpp_quantize.py", {original.string(), path.string(), type});
    const auto model = model_io::open_model_or_throw(path);
    for (const auto& tensor : model->tensors()) met.insert(tensor.matrix.block_type);
    test::LlamaCppParity parity(path, /*random=*/true);
    parity.expect_same_text({"a bad cab", "fed a bee", "face", "a dab", "bead"}, 40);
  }
  for (const GgufType type : {GgufType::Q4_K, GgufType::Q5_K, GgufType::Q6_K, GgufType::Q4_1,
                              GgufType::Q5_0, GgufType::Q5_1, GgufType::Q3_K, GgufType::IQ4_NL})
    EXPECT_TRUE(met.contains(type)) << static_cast<int>(type);
}

}  // namespace
}  // namespace hone::app
