// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/tokenizer_file.h"

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/core/log.h"
#include "hone/model_io/gguf_vocabulary.h"
#include "hone/model_io/metadata/gguf_metadata.h"
#include "hone/model_io/metadata/hf_metadata.h"
#include "hone/text/load_tokenizer.h"

namespace hone::model_io {

namespace fs = std::filesystem;
std::shared_ptr<const text::Tokenizer> open_tokenizer(const fs::path& path) {
  if (path.extension() != ".gguf") return text::load_tokenizer_or_throw(path);
  const std::string where = path.string();
  const MmapFile file(path);
  return text::make_tokenizer(read_gguf_vocabulary(parse_gguf(file.bytes(), where), where), where);
}

std::shared_ptr<const text::Tokenizer> find_tokenizer(const fs::path& folder) {
  const fs::path file = text::find_tokenizer_file(folder);
  return file.empty() ? nullptr : text::load_tokenizer_or_throw(file);
}

void take_tokenizer_metadata(const fs::path& tokenizer, ModelMetadata& out) {
  if (tokenizer.empty()) return;
  ModelMetadata own;
  if (tokenizer.extension() == ".gguf") {
    const MmapFile file(tokenizer);
    read_gguf_chat_templates(parse_gguf(file.bytes(), tokenizer.string()), tokenizer.string(), own);
  } else {
    std::error_code ignored;
    read_hf_chat_templates(
        fs::is_directory(tokenizer, ignored) ? tokenizer : fs::absolute(tokenizer).parent_path(),
        own);
  }
  out.replace_tokenizer(own);
}

std::shared_ptr<const text::Tokenizer> load_model_tokenizer(
    const OpenOptions& options, const std::string& where,
    FunctionRef<std::shared_ptr<const text::Tokenizer>()> find_own) {
  if (!options.tokenizer.empty()) return open_tokenizer(options.tokenizer);
  std::shared_ptr<const text::Tokenizer> own;
  try {
    own = find_own();
  } catch (const Error& error) {
    if (options.need_tokenizer || error.category() != ErrorCategory::Unsupported) throw;
    log_warning(error.what());
  }
  if (own == nullptr && options.need_tokenizer)
    fail(ErrorCategory::NotFound, where,
         "There is no tokenizer in or next to the model. Pass one with --tokenizer.");
  return own;
}

}  // namespace hone::model_io
