"""Writes chat.json: prompts that Hugging Face's own renderer makes of chat templates, for the tests of `llm/src/chat`.

Needs transformers: python3 make_chat.py. The templates are written for this test; between them they use what templates of
published models do: conditions on roles, `raise_exception`, loop controls, namespaces, macros, slices, Python's methods of
strings and dictionaries, `tojson` with and without indentation, trimming in all its forms, `generation` blocks.
"""
import json
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

USER, BOT, SYS = "user", "assistant", "system"
TEMPLATES = {
    "chatml": """{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}
{%- endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' + '\n' }}
{% endfor %}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
""",
    "alternating": """{{ bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set system = none %}{%- set turns = messages %}
{%- endif %}
{%- for m in turns %}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate: ' ~ m.role ~ ' at ' ~ loop.index) }}
    {%- endif %}
    {%- if m.role == 'user' %}
        {{- '[INST] ' + (system + '\n\n' if system is not none and loop.last else '') + m.content.strip() + ' [/INST]' }}
    {%- else %}
        {% generation %}{{ ' ' + m.content | trim + eos_token }}{% endgeneration %}
    {%- endif %}
{%- endfor %}""",
    "thinking": """{%- macro body(m) -%}
{%- if m.content is string -%}{{ m.content }}{%- else -%}
{%- for part in m.content if part.type == 'text' -%}{{ part['text'] }}{%- if not loop.last %} | {% endif -%}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last=-1, seen=false) -%}
{%- for m in messages[::-1] -%}
    {%- if m.role == "user" and not (m.content is string and m.content.startswith('<tool_response>')) -%}
        {%- set ns.last = (messages | length - 1) - loop.index0 -%}{%- break -%}
    {%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
    {%- if m.role == 'tool' -%}{%- continue -%}{%- endif -%}
    <|{{ m.role }}|>
    {%- set content = body(m) -%}
    {%- if m.role == 'assistant' and '</think>' in content -%}
        {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
        {%- set content = content.split('</think>')[-1].lstrip('\n') -%}
        {%- if loop.index0 > ns.last %}({{ thought | upper }}){% endif -%}
    {%- endif -%}
    {{- content -}}
    {%- for call in m.tool_calls or [] %}
        {%- set f = call.function if call.function is defined else call %}
<call>{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}</call>
    {%- endfor %}
{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}{% endif %}
""",
    "tools": """{%- if tools is not none and tools %}
{{- "Functions:\n" }}
{%- for tool in tools %}
{{ tool | tojson }}
{{ tool | tojson(indent=4) }}
{%- for name, p in tool.function.parameters.properties.items() %}
- {{ name }}: {{ p.type | default('any') | capitalize }}{{ ' (required)' if name in tool.function.parameters.required }}
{%- endfor %}
{%- endfor %}
{%- else %}none {{ tools }} {{ documents is none }} {{ 1 == 1 }}{% endif %}
{%- for m in messages | selectattr('role', 'equalto', 'user') %}
    {{ '%s/%d' | format(m.role, loop.index) }}: {{ m.get('name', 'nobody') }} {{ m['content'].replace('a', 'A')[:20] }}
    {{- '\t' ~ m.content.title() if loop.last else '' }}
    {%- for k in ['x', 'y'] %} {{ k }}{{ loop.previtem | default('') }}{% endfor %}
{%- endfor %}
{{ messages | map(attribute='role') | join(', ') }} {{ messages[-1]['content'][-3:] }} {{ 7 // 2 }} {{ 7 / 2 }} {{ "a" if none else "b" }}
""",
}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "It's <b>fine</b> & \"dry\" – 日本", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "rate": 0.5}, "any": {}},
    "required": ["place"]}}}]
CONVERSATIONS = {
    "one": [{"role": USER, "content": "  Hello there \n"}],
    "system": [{"role": SYS, "content": "Speak like a cat."}, {"role": USER, "content": "Hi"}, {"role": BOT, "content": " Meow "},
               {"role": USER, "content": "What's up?\n\nTell me, “café” 🙂"}],
    "thought": [{"role": USER, "content": "1+1?"}, {"role": BOT, "content": "<think>\neasy\n</think>\n\n2"}, {"role": USER, "content": "2+2?"},
                {"role": BOT, "content": "<think>\nhard\n</think>\n\n4"}],
    "calls": [{"role": USER, "content": [{"type": "text", "text": "Rain"}, {"type": "image"}, {"type": "text", "text": "tomorrow?"}]},
              {"role": BOT, "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments":
               {"place": "Köln", "days": 1, "deep": {"b": [1, 2.5, None, True], "a": "it's <x>"}}}}]},
              {"role": "tool", "content": "wet"}, {"role": USER, "content": "Thanks, aardvark", "name": "Ann"}],
    "twice": [{"role": USER, "content": "a"}, {"role": USER, "content": "b"}],
}
KWARGS = {"bos_token": "<s>", "eos_token": "</s>"}


def main():
    cases = []
    for template, source in TEMPLATES.items():
        for conversation, messages in CONVERSATIONS.items():
            for prompt, tools, extra in [(True, None, {}), (False, TOOLS, {"enable_thinking": False}), (True, TOOLS, {"enable_thinking": False})]:
                case = dict(template=template, conversation=conversation, generation_prompt=prompt, tools=tools is not None, variables=extra)
                try:
                    out, _ = render_jinja_template([messages], tools=tools, chat_template=source, add_generation_prompt=prompt, **extra, **KWARGS)
                    case["text"] = out[0]
                except Exception as e:
                    case["refused"] = str(e)
                cases.append(case)
    out = dict(made_by=f"transformers {transformers.__version__} (Hugging Face), render_jinja_template", templates=TEMPLATES,
               tokens=KWARGS, cases=cases)
    with open("chat.json", "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, indent=1)
    # Apart, as they were written: the order of their fields is part of a prompt.
    for name, value in [("chat_tools", TOOLS), ("chat_conversations", CONVERSATIONS)]:
        with open(f"{name}.json", "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False, indent=1)
    print(len(cases), "cases,", sum("refused" in c for c in cases), "refused")


if __name__ == "__main__":
    main()
