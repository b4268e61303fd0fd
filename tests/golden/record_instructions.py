"""Records chats, completions and packed rows with Transformers 5.24 and TRL 1.16, for
tests/data/instructions.

    python tests/golden/record_instructions.py

Trains a small tokenizer with the tokens of the formats chatml and llama3, and writes instructions.json:

    tokenizer    the contents of tokenizer.json
    chats        rows with a format, messages, the text, the token ids, and the mask of the tokens of answers
    prompts      rows with a format, messages and the text that asks for an answer
    completions  rows with a prompt, a completion, the token ids, and the mask of the tokens of completions
    packing      rows with lengths of documents, the length of a row, and the rows of document numbers that
                 the strategy "bfd" of TRL packs
"""

import json
import pathlib
import random

from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from trl import data_utils, pack_dataset
from trl.chat_template_utils import llama3_training_chat_template

FOLDER = pathlib.Path(__file__).parent

# The template of ChatML, with the marks of TRL's training templates around answers.
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ message['content'] + '<|im_end|>' + '\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
FORMATS = {"chatml": CHATML, "llama3": llama3_training_chat_template}
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>"]
WORDS = ["the", "quick", "brown", "fox", "two", "and", "café", "naïve", "你好", "世界", "😀", "42", "don't", "\n", "  ",
         "\n\n", "!", "user", "assistant", "<|im_end|>", "é"]
ENDS = ["", "", "", " ", "\n", "\n\n", "\u3000", "\x1f", "\u200b", "  \n"]


def text_of(rng, length):
    words = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, length)))
    return rng.choice(ENDS) + words + rng.choice(ENDS)


def make_tokenizer(rng):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([text_of(rng, 30).replace("<|im_end|>", "") for _ in range(200)], trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    return tokenizer


def chat_of(rng):
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": text_of(rng, 4)})
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": text_of(rng, 6)})
        messages.append({"role": "assistant", "content": text_of(rng, 6)})
    if rng.random() < 0.2:
        messages.append({"role": "user", "content": text_of(rng, 3)})
    return messages


def record_chats(rng, tokenizer):
    chats, prompts = [], []
    for i in range(40):
        name = "chatml" if i % 2 else "llama3"
        messages = chat_of(rng)
        encoded = tokenizer.apply_chat_template(messages, chat_template=FORMATS[name], tokenize=True,
                                                return_dict=True, return_assistant_tokens_mask=True)
        text = tokenizer.apply_chat_template(messages, chat_template=FORMATS[name], tokenize=False)
        chats.append({"format": name, "messages": messages, "text": text, "ids": encoded["input_ids"],
                      "answers": encoded["assistant_masks"]})
        if i < 6:
            text = tokenizer.apply_chat_template(messages[:-1], chat_template=FORMATS[name], tokenize=False,
                                                 add_generation_prompt=True)
            prompts.append({"format": name, "messages": messages[:-1], "text": text})
    return chats, prompts


def record_completions(rng, tokenizer):
    """Does what tokenize_fn of SFTTrainer does, without the token that ends a text."""
    rows = []
    for _ in range(30):
        prompt, completion = text_of(rng, 6), text_of(rng, 6)
        prompt_ids, ids = tokenizer(prompt)["input_ids"], tokenizer(prompt + completion)["input_ids"]
        length = data_utils.common_prefix_length(prompt_ids, ids)
        if length < len(prompt_ids):
            continue  # a token has characters of both texts; TRL warns of it
        rows.append({"prompt": prompt, "completion": completion, "ids": ids,
                     "answers": [0] * length + [1] * (len(ids) - length)})
    return rows


def record_packing(rng):
    rows = []
    for row_length in [1, 4, 7, 16, 16, 50]:
        lengths = [rng.randint(1, row_length) for _ in range(rng.randint(1, 25))]
        documents = Dataset.from_dict({"input_ids": [[i] * length for i, length in enumerate(lengths)]})
        packed = pack_dataset(documents, row_length, "bfd")
        rows.append({"lengths": lengths, "row_length": row_length,
                     "rows": [list(dict.fromkeys(row)) for row in packed["input_ids"]]})
    return rows


def main():
    rng = random.Random(7)
    tokenizer = make_tokenizer(rng)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin_of_text|>")
    chats, prompts = record_chats(rng, fast)
    recorded = {"tokenizer": json.loads(tokenizer.to_str()), "chats": chats, "prompts": prompts,
                "completions": record_completions(rng, fast), "packing": record_packing(rng)}
    text = json.dumps(recorded, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / "instructions.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
