// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/prompts.h"

#include <utility>

#include "hone/core/check.h"
#include "hone/server/api/request_fields.h"

namespace hone::server {
namespace {

using infer::TokenId;

std::vector<TokenId> ids_of(const Json& json, const Fields& fields, std::string_view name,
                            Index vocab) {
  std::vector<TokenId> ids;
  for (const Json& id : json) {
    if (!id.is_number_integer() || id < 0 || id >= vocab) {
      fields.fail(name, concat("token ids below ", vocab));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

}  // namespace

Prompts read_prompts(Fields& fields, std::string_view name, const TextService& service,
                     std::size_t most) {
  const Json* prompt = fields.find(name);
  const text::Tokenizer& tokenizer = service.engine().tokenizer();
  const Index vocab = service.engine().info().architecture.vocab_size;
  Prompts out;
  const auto add_text = [&](const Json& text) {
    out.texts.push_back(text.get<std::string>());
    check_bytes(std::ssize(out.texts.back()), service, fields.path_of(name));
    out.ids.push_back(tokenizer.encode(out.texts.back(), {.parse_special = true}));
  };
  const auto add_ids = [&](const Json& ids) {
    out.ids.push_back(ids_of(ids, fields, name, vocab));
    out.texts.push_back(tokenizer.decode(out.ids.back(), true));
  };
  const std::string expected = concat("a string, token ids, or up to ", most, " of them");
  if (prompt == nullptr) fields.fail(name, expected);
  if (prompt->is_string()) {
    add_text(*prompt);
  } else if (!prompt->is_array() || prompt->empty()) {
    fields.fail(name, expected);
  } else if (prompt->front().is_number()) {
    add_ids(*prompt);
  } else {
    if (prompt->size() > most) fields.fail(name, expected);
    for (const Json& one : *prompt) {
      if (one.is_string()) {
        add_text(one);
      } else if (one.is_array()) {
        add_ids(one);
      } else {
        fields.fail(name, expected);
      }
    }
  }
  for (const std::vector<TokenId>& ids : out.ids) {
    if (ids.empty()) fields.fail(name, "a prompt of at least one token");
    check_context(std::ssize(ids), service, fields.path_of(name));
  }
  return out;
}

}  // namespace hone::server
