#include "text/gguf_pretokenizers.h"

#include <algorithm>

#include "base/error.h"
#include "io/safetensors.h"

namespace weft {
namespace {

struct Row {
  std::vector<std::string_view> names;
  GgufPreTokenizer meaning;
};

// The patterns are llama.cpp's forms of those in the models' own tokenizer.json files. Where theirs tell
// capitals from small letters, these do so for ASCII only.

const std::string kContraction = R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))";
const std::string kWord = R"([^\r\n\p{L}\p{N}]?\p{L}+)";
const std::string kSigns = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
const std::string kSignsAndSlash = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)";
const std::string kSpaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::string kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

std::string llama3(const std::string& number, const std::string& spaces = kSpaces) {
  return kContraction + "|" + kWord + "|" + number + "|" + kSigns + "|" + spaces;
}

/// Words begin with a capital, or are all capitals; `letter` says what words consist of.
std::string camel(const std::string& letter, const std::string& number, const std::string& end) {
  const std::string before = R"([^\r\n\p{L}\p{N}]?)", big = "(?:(?=" + letter + ")[^a-z])",
                    small = "(?:(?=" + letter + ")[^A-Z])";
  return before + big + "*" + small + "+" + end + "|" + before + big + "+" + small + "*" + end + "|" +
         number + "|" + kSignsAndSlash + "|" + kSpaces;
}

/// Words with their marks, case not looked at.
std::string marked_words(const std::string& number) {
  return R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:)" + kContraction + ")?|" + number + "|" + kSignsAndSlash +
         "|" + kSpaces;
}

// DeepSeek.
const std::string kLatinAndMore =
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C})"
    R"(\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5})"
    R"(\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B})"
    R"(\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45})"
    R"(\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB})"
    R"(\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115})"
    R"(\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139})"
    R"(\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"
    R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
    R"(]+)";
const std::string kIdeographs = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}&&\S]+)";
const std::string kKana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
const std::string kAsciiSign = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)";
const std::string kSignsThenWords = kAsciiSign + R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)";

// Groups of three digits from the right; what is before a number stays with its first group.
const std::string kThousands = R"(\P{N}*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";

const std::string kHan =
    R"(\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B81F}\x{2B820}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F})";
const std::string kAsianScripts =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF})"
    R"(\x{E40}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";
const std::string kYoutuScripts =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+)"
    R"(|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+)"
    R"(|[\x{3105}-\x{312F}]+|)" +
    kKana;
const std::string kNotPunctuation = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";
const std::string kLines = R"([^\n]+|\n+)";

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"default", ""}, {.patterns = {R"([\p{P}$+<=>^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano"},
       {.patterns = {llama3(R"(\p{N}{1,3})")}, .ignore_merges = true, .add_bos = true}},
      {{"glm4", "glm5"}, {.patterns = {llama3(R"(\p{N}{1,3})")}, .ignore_merges = true}},
      {{"chatglm-bpe", "dbrx", "smaug-bpe"}, {.patterns = {llama3(R"(\p{N}{1,3})")}}},
      {{"jais-2"},
       {.patterns = {llama3(
            R"(\p{N}{1,3})",
            R"(\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S))"
            R"(|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s)")}}},
      {{"minicpm5"}, {.patterns = {R"(\p{N}{1,3})", llama3(R"(\p{N}+)")}, .ignore_merges = true}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "megrez",
        "grok-2"},
       {.patterns = {llama3(R"(\p{N})")}}},
      {{"qwen35"},
       {.patterns = {kContraction +
                     R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" + kSpaces}}},
      {{"laguna"}, {.patterns = {kLines, llama3(R"(\p{N})")}}},
      {{"ufakzeka"}, {.patterns = {kWord + R"(|\p{N}|)" + kSigns + "|" + kSpaces}}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {.patterns = {kContraction + "|" + kWord + R"(|\p{N}|)" + kSigns + R"(|\s*[\r\n]|\s+(?!\S)|\s+)"}}},
      {{"seed-coder"},
       {.patterns = {kContraction + "|" + kWord + R"(|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|)" + kSpaces}}},
      {{"exaone-moe"},
       {.patterns =
            {kContraction +
             R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
             R"(|\s*[\r\n]|\s+(?!\S)|\s+)"}}},
      {{"kimi-k2"},
       {.patterns = {"[" + kHan + R"(]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^)" + kHan + "]]+(?:" + kContraction +
                     R"()?|\p{N}{1,3}|)" + kSigns + "|" + kSpaces}}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
        "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "trillion",
        "granite-docling", "exaone4"},
       {.patterns = {kGpt2}}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {.patterns = {R"(\p{N})", kGpt2}}},
      {{"falcon"}, {.patterns = {R"([\p{P}$+<=>^~|`]+)", kGpt2, "[0-9][0-9][0-9]"}}},
      {{"chameleon"},
       {.patterns = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", R"([\t\n]|    |  )", R"(\p{N})",
                     R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
        .add_bos = true}},
      {{"superbpe"}, {.patterns = {R"(\p{N}+)", "(?=(?:[0-9]{3})+(?![0-9]))"}}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {.patterns = {kNotPunctuation}}},
      {{"viking"}, {.patterns = {kNotPunctuation, R"(\p{N})"}}},
      {{"tekken"}, {.patterns = {camel(R"(\p{L})", R"(\p{N})", "")}, .ignore_merges = true, .add_bos = true}},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
       {.patterns = {camel(R"(\p{L})", R"(\p{N}{1,3})", "(?:" + kContraction + ")?")}}},
      {{"granite-embed-multi-97m"},
       {.patterns = {camel(R"([\p{L}\p{M}])", R"(\p{N}{1,3})", "(?:" + kContraction + ")?")},
        .ignore_merges = true}},
      {{"tiny_aya", "cohere2moe"}, {.patterns = {kThousands, marked_words(R"(\p{N}{1,3})")}}},
      {{"youtu"}, {.patterns = {kYoutuScripts, marked_words(R"(\p{N})")}, .ignore_merges = true}},
      {{"deepseek-llm"},
       {.patterns = {R"([\r\n])", kLatinAndMore,
                     R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}\x{3002}]+)",
                     R"(\s+$)", kIdeographs, R"(\p{N}+)"}}},
      {{"deepseek-coder"},
       {.patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kIdeographs, R"(\p{N})"}}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {.patterns = {R"(\p{N}{1,3})", kKana, kSignsThenWords + R"([\r\n]*|)" + kSpaces}}},
      {{"spark2_5"},
       {.patterns = {R"(\p{N}{1,3})", kKana, kSignsThenWords + R"(|[\r\n]|\s+(?!\S)|\s+)", R"(\p{N})"}}},
      {{"afmoe"}, {.patterns = {kThousands, kAsianScripts, kSignsThenWords + R"([\r\n]*|)" + kSpaces}}},
      {{"gemma4", "granite-embed-multi-311m"},
       {.patterns = {kLines}, .byte_level = false, .escape_spaces = true, .newlines_whole = true}},
      {{"sarvam-moe"}, {.patterns = {kLines}, .byte_level = false, .escape_spaces = true}},
      {{"whitespace"}, {.patterns = {}, .byte_level = false}},
  };
  return table;
}

}  // namespace

GgufPreTokenizer gguf_pretokenizer(std::string_view name) {
  for (const Row& row : rows())
    if (std::ranges::find(row.names, name) != row.names.end()) return row.meaning;
  fail(ErrorKind::unsupported, "[tokenizer] the pre-tokenizer '{}' is not known", one_line(name));
}

std::vector<std::string_view> gguf_pretokenizer_names() {
  std::vector<std::string_view> names;
  for (const Row& row : rows()) names.push_back(row.names[0]);
  return names;
}

}  // namespace weft
