#include "text/end_tokens.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

constexpr std::array<std::string_view, 22> kEnds = {"<|eot_id|>",
                                                    "<|im_end|>",
                                                    "<|end|>",
                                                    "<|return|>",
                                                    "<|call|>",
                                                    "<|flush|>",
                                                    "<|calls|>",
                                                    "<end_of_turn>",
                                                    "<|endoftext|>",
                                                    "</s>",
                                                    "<|eom_id|>",
                                                    "<EOT>",
                                                    "_<EOT>",
                                                    "[EOT]",
                                                    "[EOS]",
                                                    "<|end_of_text|>",
                                                    "<end_of_utterance>",
                                                    "<eos>",
                                                    "<turn|>",
                                                    "<|tool_response>",
                                                    "<\uff5cend\u2581of\u2581sentence\uff5c>",
                                                    "[e~["};

// Prefix, suffix, middle, padding, repository and file of fill-in-the-middle prompts.
constexpr std::array<std::string_view, 34> kInfill = {
    "<|fim_prefix|>", "<fim-prefix>",  "<fim_prefix>",    "<\uff5cfim\u2581begin\uff5c>",
    "<PRE>",          "\u2581<PRE>",   "<|code_prefix|>", "<|prefix|>",
    "<|fim_suffix|>", "<fim-suffix>",  "<fim_suffix>",    "<\uff5cfim\u2581hole\uff5c>",
    "<SUF>",          "\u2581<SUF>",   "<|code_suffix|>", "<|suffix|>",
    "<|fim_middle|>", "<fim-middle>",  "<fim_middle>",    "<\uff5cfim\u2581end\uff5c>",
    "<MID>",          "\u2581<MID>",   "<|code_middle|>", "<|middle|>",
    "<|fim_pad|>",    "<fim-pad>",     "<fim_pad>",       "<PAD>",
    "<|fim_repo|>",   "<|repo_name|>", "<fim-repo>",      "<REPO>",
    "<reponame>",     "<|file_sep|>"};

}  // namespace

bool looks_like_control(std::string_view text) {
  return std::ranges::find(kEnds, text) != kEnds.end() || std::ranges::find(kInfill, text) != kInfill.end();
}

std::set<TokenId> end_tokens(const Vocabulary& vocabulary) {
  std::set<TokenId> ends;
  const auto has = [&](std::string_view text) { return vocabulary.find(text) != kNoToken; };
  for (std::string_view text : kEnds)
    if (has(text)) ends.insert(vocabulary.find(text));
  // Where a message ends with <|end|>, the turn goes on: gpt-oss and solar have other ends.
  if (has("<|return|>") || (has("<|calls|>") && has("<|flush|>"))) ends.erase(vocabulary.find("<|end|>"));
  if (has("<|tool_response>")) ends.erase(vocabulary.find("</s>"));  // HTML's, in gemma 4
  return ends;
}

}  // namespace weft
