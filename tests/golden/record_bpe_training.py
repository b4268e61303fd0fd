"""Records byte-level BPE models that the tokenizers library 0.23 trains, for tests/data/corpora.

    python tests/golden/record_bpe_training.py

Writes tokenizers/bpe_training.json.gz. "text" is a generated text in many scripts, with repeated
characters and many ties. "files" has a row for each setting of a training on the lines of the text, and
"rows" for a training on texts that can have several lines, for which the text is divided at "\\0":

    [vocab_size, min_frequency, special tokens, tokenizer.json]

"shakespeare" is [vocab_size, number of merges, hash of the merges] for tinyshakespeare.txt in the folder of
the variable AXLE_DATA.
"""

import gzip
import json
import os
import pathlib
import random
import tempfile

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from record_tokenizers import ALPHABET, FOLDER, text_of


def make_text():
    source = random.Random(7)
    lines = [text_of(source, 9) for _ in range(900)]
    # Runs of characters, whose pairs overlap and which several sequences of merges produce.
    lines += ["".join(source.choice("ab") * source.randint(1, 9) for _ in range(4)) for _ in range(60)]
    lines += [source.choice(["z", "yx", "w"]) * int(source.expovariate(0.03) + 1) for _ in range(150)]
    source.shuffle(lines)
    for i in range(0, len(lines), 40):
        lines[i] = lines[i] + "\0"
    return "\n".join(lines)


def untrained():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    return t


def trainer(vocab_size, min_frequency, special):
    return trainers.BpeTrainer(vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=special,
                               initial_alphabet=ALPHABET, show_progress=False)


SETTINGS = [
    (256, 0, []),
    (300, 0, ["<|endoftext|>"]),
    (1000, 2, ["<s>", "</s>", "<pad>"]),
    # Special tokens that are characters of the alphabet, merged tokens or words of the text.
    (700, 0, ["the", "a", "aa", "Ġthe", "the"]),
    (100_000, 5, ["<|endoftext|>"]),
    (100_000, 0, []),
]


def main():
    text = make_text()
    case = {"text": text, "files": [], "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "text.txt"
        path.write_bytes(text.encode())
        for settings in SETTINGS:
            t = untrained()
            t.train([str(path)], trainer(*settings))
            case["files"].append([*settings, json.loads(t.to_str())])
            print("files", settings, t.get_vocab_size(), len(case["files"][-1][3]["model"]["merges"]))
    for settings in [(600, 0, ["<|endoftext|>"]), (100_000, 4, [])]:
        t = untrained()
        t.train_from_iterator(text.split("\0"), trainer(*settings))
        case["rows"].append([*settings, json.loads(t.to_str())])
    t = untrained()
    t.train([os.environ["AXLE_DATA"] + "/tinyshakespeare.txt"], trainer(2000, 0, []))
    merges = json.loads(t.to_str())["model"]["merges"]
    number = 0
    for byte in "".join(left + right for left, right in merges).encode():
        number = (number * 31 + byte) % 2**64
    case["shakespeare"] = [2000, len(merges), number]
    data = json.dumps(case, ensure_ascii=False, separators=(",", ":")).encode()
    path = FOLDER / "bpe_training.json.gz"
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
