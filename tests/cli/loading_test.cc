// SPDX-License-Identifier: Apache-2.0
// --weights and --pack-cache through the program.
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

class Loading : public Cli {
 protected:
  Loading() : hf_(write_tiny_model()) {}
  static Json generate(const std::string& model, const Arguments& more = {}) {
    return json_of(
        Arguments{"generate", model, "-p", "abc", "-n", "20", "--temp", "0", "--ignore-eos"} +
        more);
  }
  std::string hf_;
};

TEST_F(Loading, weights_give_the_text_of_the_converted_model) {
  for (const std::string bits : {"8", "4"}) {
    const std::string converted = path("q" + bits);
    ASSERT_EQ(run_hone({"convert", hf_, converted, "--dtype", "q" + bits + "_0"}).status, 0);
    const Json wanted = generate(converted), got = generate(hf_, {"--weights", "q" + bits});
    EXPECT_EQ(got["tokens"], wanted["tokens"]);
    EXPECT_EQ(got["text"], wanted["text"]);
    EXPECT_EQ(got["weights"]["format"], "q" + bits);
    ASSERT_EQ(got["weights"]["kept"].size(), 2u);  // 40 columns
    EXPECT_EQ(got["weights"]["kept"][0]["dtype"], "f16");
  }
  EXPECT_EQ(generate(hf_)["weights"]["kept"], Json::array());
}

TEST_F(Loading, eval_quantizes_the_model_and_not_the_baseline) {
  write_text_file(path("text"), "a b c d e f g h i j k l m n o p q r s t u v w x y z");
  const Arguments common{"--data", path("text"), "--baseline", hf_};
  const Json same = json_of(Arguments{"eval", hf_} + common);
  EXPECT_EQ(same["kl_mean"], 0);
  EXPECT_FALSE(same.contains("weights"));
  const Json q4 = json_of(Arguments{"eval", hf_, "--weights", "q4"} + common);
  EXPECT_GT(q4["kl_mean"].get<double>(), 0);
  EXPECT_EQ(q4["weights"]["format"], "q4");
}

TEST_F(Loading, the_second_start_maps_what_the_first_one_packed) {
  const Arguments cache{"--pack-cache", path("cache"), "--weights", "q8"};
  const Json plain = generate(hf_, {"--weights", "q8"});
  EXPECT_EQ(plain["weights"]["mapped"], false);
  for (int run = 0; run < 2; ++run) {
    const Json cached = generate(hf_, cache);
    EXPECT_EQ(cached["tokens"], plain["tokens"]);
    EXPECT_EQ(cached["weights"]["mapped"], true);
    const auto folder = *std::filesystem::directory_iterator(path("cache"));
    const auto packed = folder.path() / "packed.safetensors";
    if (run == 0) std::filesystem::create_hard_link(packed, path("first"));
    EXPECT_TRUE(std::filesystem::equivalent(packed, path("first"))) << "packed again";
  }
  for (const auto& entry : std::filesystem::directory_iterator(path("cache"))) {
    const Json inside = json_of({"inspect", (entry.path() / "packed.safetensors").string()});
    EXPECT_EQ(inside["metadata"]["hone.packed.weights"], "q8_0");
    EXPECT_NE(inside["metadata"]["hone.packed.model"].get<std::string>().find("model.safetensors"),
              std::string::npos);
    write_text_file(entry.path() / "packed.safetensors", "damaged");
  }
  const ProgramResult repaired = run_hone(
      Arguments{"generate", hf_, "-p", "abc", "-n", "20", "--temp", "0", "--ignore-eos"} + cache);
  EXPECT_EQ(repaired.status, 0);
  EXPECT_NE(repaired.err.find("packed again"), std::string::npos) << repaired.err;
}

TEST_F(Loading, a_link_in_the_cache_is_replaced_and_not_followed) {
  const Arguments cache{"--pack-cache", path("cache")};
  generate(hf_, cache);
  write_text_file(path("thesis"), "mine");
  const auto entry = *std::filesystem::directory_iterator(path("cache"));
  const auto packed = entry.path() / "packed.safetensors";
  std::filesystem::remove(packed);
  std::filesystem::create_symlink(path("thesis"), packed);
  run_hone(Arguments{"generate", hf_, "-p", "abc", "-n", "2"} + cache);
  EXPECT_EQ(read_text_file(path("thesis")), "mine");
  EXPECT_FALSE(std::filesystem::is_symlink(packed));
  EXPECT_EQ(generate(hf_, cache)["weights"]["mapped"], true);
}

TEST_F(Loading, other_values_are_wrong_usage) {
  expect_refusal({"generate", hf_, "-p", "a", "--weights", "q5"}, 2, "--weights: q5");
  expect_refusal({"generate", hf_, "-p", "a", "--pack-cache", ""}, 2, "--pack-cache");
}

}  // namespace
}  // namespace hone::test
