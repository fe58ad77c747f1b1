#include <algorithm>

#include "text/chat_sources.h"

namespace weft {
namespace {

struct BuiltIn {
  std::string_view name, source;
};

constexpr std::string_view kChatml = R"({% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
)";

/// A first system message goes into the first user's turn.
constexpr std::string_view kLlama2 = R"({% set ns = namespace(system='') %}
{% for message in messages %}
{% if message['role'] == 'system' %}
{% set ns.system = '<<SYS>>\n' + message['content'] + '\n<</SYS>>\n\n' %}
{% elif message['role'] == 'user' %}
{{ bos_token + '[INST] ' + ns.system + message['content'] + ' [/INST]' }}
{%- set ns.system = '' %}
{% else %}
{{ ' ' + message['content'] + ' ' + eos_token }}
{%- endif %}
{% endfor %}
)";

constexpr std::string_view kLlama3 = R"({{ bos_token }}
{%- for message in messages %}
<|start_header_id|>{{ message['role'] }}<|end_header_id|>

{{ message['content'] | trim }}<|eot_id|>
{%- endfor %}
{% if add_generation_prompt %}
<|start_header_id|>assistant<|end_header_id|>

{% endif %}
)";

constexpr std::string_view kMistral = R"({{ bos_token }}
{%- set ns = namespace(system='') %}
{% for message in messages %}
{% if message['role'] == 'system' %}
{% set ns.system = message['content'] + '\n\n' %}
{% elif message['role'] == 'user' %}
{{ '[INST] ' + ns.system + message['content'] + ' [/INST]' }}
{%- set ns.system = '' %}
{% else %}
{{ ' ' + message['content'] + eos_token }}
{%- endif %}
{% endfor %}
)";

constexpr std::string_view kGemma = R"({{ bos_token }}
{%- set ns = namespace(system='') %}
{% for message in messages %}
{% if message['role'] == 'system' %}
{% set ns.system = message['content'] | trim + '\n\n' %}
{% else %}
<start_of_turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}
{{ ns.system + message['content'] | trim }}<end_of_turn>
{% set ns.system = '' %}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}
<start_of_turn>model
{% endif %}
)";

constexpr std::string_view kPhi3 = R"({% for message in messages %}
<|{{ message['role'] }}|>
{{ message['content'] }}<|end|>
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}
)";

constexpr std::string_view kZephyr = R"({% for message in messages %}
<|{{ message['role'] }}|>
{{ message['content'] + eos_token }}
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}
)";

constexpr std::string_view kVicuna = R"({{ bos_token }}
{%- for message in messages %}
{% if message['role'] == 'system' %}
{{ message['content'] + '\n\n' }}
{%- elif message['role'] == 'user' %}
USER: {{ message['content'] + '\n' }}
{%- else %}
ASSISTANT: {{ message['content'] + eos_token + '\n' }}
{%- endif %}
{% endfor %}
{% if add_generation_prompt %}
ASSISTANT:
{%- endif %}
)";

constexpr std::string_view kAlpaca = R"({% for message in messages %}
{% if message['role'] == 'system' %}
{{ message['content'] + '\n\n' }}
{%- elif message['role'] == 'user' %}
### Instruction:
{{ message['content'] + '\n\n' }}
{%- else %}
### Response:
{{ message['content'] + eos_token + '\n\n' }}
{%- endif %}
{% endfor %}
{% if add_generation_prompt %}
### Response:
{% endif %}
)";

constexpr BuiltIn kBuiltIns[] = {
    {"alpaca", kAlpaca},     {"chatml", kChatml}, {"gemma", kGemma},        {"llama2", kLlama2},
    {"llama2-sys", kLlama2}, {"llama3", kLlama3}, {"mistral-v1", kMistral}, {"mistral-v3", kMistral},
    {"phi3", kPhi3},         {"vicuna", kVicuna}, {"zephyr", kZephyr},
};

}  // namespace

std::string_view built_in_chat_template(std::string_view name) {
  const auto* found = std::ranges::find(kBuiltIns, name, &BuiltIn::name);
  return found == std::end(kBuiltIns) ? std::string_view() : found->source;
}

std::vector<std::string_view> built_in_chat_names() {
  std::vector<std::string_view> names;
  for (const BuiltIn& built_in : kBuiltIns) names.push_back(built_in.name);
  return names;
}

}  // namespace weft
