// SPDX-License-Identifier: Apache-2.0
// Text from a prompt: opens a model, submits a request, and calls step() until it has finished.
//   generate MODEL [PROMPT [TOKENS]]
// MODEL is a Hugging Face folder, a GGUF file or a llama2.c file, as for `hone generate`.
#include <hone/core/thread/thread_pool.h>
#include <hone/infer/engine.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace {

namespace infer = hone::infer;

// Prints each piece of text as soon as it is certain. The engine calls it from step().
class PrintSink final : public infer::EventSink {
 public:
  bool try_push(infer::Event&& event) noexcept override {
    std::fwrite(event.text.data(), 1, event.text.size(), stdout);
    std::fflush(stdout);
    if (event.finished) last_ = std::move(event);
    return true;
  }
  // The event that ended the request; empty while it runs.
  const std::optional<infer::Event>& last() const { return last_; }

 private:
  std::optional<infer::Event> last_;
};

void generate(const char* model, const std::string& prompt, hone::Index tokens) {
  hone::ThreadPool pool;  // one worker per CPU that this process may use
  const auto engine = infer::Engine::open_or_throw(model, {.executor = &pool});

  infer::Request request;
  request.tokens = engine->tokenizer().encode(prompt);
  request.sampling.temperature = 0.8f;
  request.sampling.top_p = 0.95f;
  request.sampling.seed = 1;  // the same seed gives the same text
  request.max_tokens = tokens;

  const auto sink = std::make_shared<PrintSink>();
  engine->submit(std::move(request), sink);
  while (!sink->last()) engine->step();

  const infer::Event& last = *sink->last();
  if (last.finished == infer::FinishReason::Failed) {
    throw hone::Error(last.error_category, last.error);
  }
  const infer::Timings& timings = last.timings;
  std::printf("\n%lld tokens, %.1f per second, %s\n",
              static_cast<long long>(timings.generated_tokens), timings.decode_per_s(),
              std::string(infer::name_of(*last.finished)).c_str());
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
