// SPDX-License-Identifier: Apache-2.0
// Text from a prompt: opens a model and generates until the text ends.
//   generate MODEL [PROMPT [TOKENS]]
// MODEL is a Hugging Face folder, a GGUF file or a llama2.c file, as for `hone generate`.
#include <hone/core/thread/thread_pool.h>
#include <hone/infer/engine.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace {

namespace infer = hone::infer;

void generate(const char* model, const std::string& prompt, hone::Index tokens) {
  hone::ThreadPool pool;  // one worker per CPU that this process may use
  const auto engine = infer::Engine::open_or_throw(model, {.executor = &pool});

  infer::Request request;
  request.tokens = engine->tokenizer().encode(prompt);
  request.sampling.temperature = 0.8f;
  request.sampling.top_p = 0.95f;
  request.sampling.seed = 1;  // the same seed gives the same text
  request.max_tokens = tokens;

  // Prints each piece of text as soon as it is certain.
  const infer::Result result = engine->generate(std::move(request), [](const infer::Event& event) {
    std::fwrite(event.text.data(), 1, event.text.size(), stdout);
    std::fflush(stdout);
  });
  const infer::Timings& timings = result.last().timings;
  std::printf("\n%lld tokens, %.1f per second, %s\n",
              static_cast<long long>(timings.generated_tokens), timings.decode_per_s(),
              std::string(infer::name_of(result.finish_reason())).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: generate MODEL [PROMPT [TOKENS]]\n");
    return 2;
  }
  try {
    generate(argv[1], argc > 2 ? argv[2] : "Once upon a time", argc > 3 ? std::atol(argv[3]) : 100);
    return 0;
  } catch (const hone::Error& error) {
    std::fprintf(stderr, "generate: %s\n", error.what());
    return hone::exit_status(error.category());
  }
}
