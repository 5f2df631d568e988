// SPDX-License-Identifier: Apache-2.0
// What `hone convert` writes, read by llama.cpp. HONE_PEER_PYTHON names a Python that has it.
#include "tests/app/llama_cpp_parity.h"

#include "hone/app/convert.h"
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

}  // namespace
}  // namespace hone::app
