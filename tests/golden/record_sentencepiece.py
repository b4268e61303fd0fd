"""Records models and results of sentencepiece 0.2, for tests/data/sentencepiece.

    python tests/golden/record_sentencepiece.py

Trains small models on generated text in many scripts, and writes for each of them a file
tokenizers/sentencepiece_<name>.json.gz. "model" is the model file in base64, "lines" has rows
[text, ids, decoded], and "decoded" has rows [ids, text] of random ids.
"""

import base64
import gzip
import io
import json
import pathlib
import random
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from record_tokenizers import ALL, FOLDER, corpus, text_of

TRAIN = {
    "unigram": dict(model_type="unigram", vocab_size=700),
    "unigram_bytes": dict(
        model_type="unigram", vocab_size=900, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, user_defined_symbols=["<sep>", "the quick", "fox▁", "▁▁▁"]),
    "bpe_bytes": dict(
        model_type="bpe", vocab_size=900, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, user_defined_symbols=["<sep>", "the quick", "fox▁", "▁▁▁"],
        allow_whitespace_only_pieces=True),
    "bpe_suffix": dict(
        model_type="bpe", vocab_size=600, normalization_rule_tsv="small", treat_whitespace_as_suffix=True,
        unk_surface="<?>", pad_id=3, control_symbols=["<mask>"], user_defined_symbols=["ﬁ"]),
    "unigram_plain": dict(
        model_type="unigram", vocab_size=600, normalization_rule_tsv="small", add_dummy_prefix=False,
        split_by_whitespace=False, max_sentencepiece_length=24, user_defined_symbols=["Ｆｕｌｌ"]),
}
# Models of which every fifth normal piece is set to the type UNUSED.
UNUSED = {"unigram_bytes", "bpe_bytes", "bpe_suffix"}
WORDS = ["<sep>", "the quick", "fox ", "   ", "<mask>", "<s>", "<unk>", "<0x41>", "▁", "①②", "ﾊﾟ", "ｶﾞ", "½", "ﷺ"]
LINES = 700


def write_rules(path):
    """Writes a character map that changes characters, removes them, and replaces several by one or many."""
    rules = {"\u200b": "", "\u00ad": "", "\u3000": " ", "\t": " ", "\n": " ", "e\u0301": "é", "a\u030a": "å",
             "a\u030a\u0323": "ạ\u030a", "ﷺ": "صلى الله عليه وسلم", "ﾊﾟ": "パ", "ｶﾞ": "ガ"}
    for c in set("".join(ALL)) - set(rules):
        if unicodedata.normalize("NFKC", c).casefold() != c:
            rules[c] = unicodedata.normalize("NFKC", c).casefold()
    path.write_text("".join(
        " ".join(f"{ord(c):X}" for c in key) + "\t" + " ".join(f"{ord(c):X}" for c in value) + "\n"
        for key, value in sorted(rules.items())))


def train_model(lines, out, options):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([part for line in lines for part in line.split("\n") if part.strip()]),
        model_writer=out, character_coverage=0.98, num_threads=1, minloglevel=2, hard_vocab_limit=False, **options)


def train(name):
    lines = [line.replace("\0", "") for line in corpus()]
    out = io.BytesIO()
    options = dict(TRAIN[name])
    with tempfile.TemporaryDirectory() as folder:
        if "normalization_rule_tsv" in options:
            path = pathlib.Path(folder) / "rules.tsv"
            write_rules(path)
            options["normalization_rule_tsv"] = str(path)
        train_model(lines, out, options)
    model = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
    if name in UNUSED:
        normal = [piece for piece in model.pieces if piece.type == piece.NORMAL and len(piece.piece) > 1]
        for piece in normal[::5]:
            piece.type = piece.UNUSED
    if name == "unigram_plain":  # also changes the decoded text
        model.denormalizer_spec.CopyFrom(model.normalizer_spec)
        model.denormalizer_spec.escape_whitespaces = False
    model.normalizer_spec.normalization_rule_tsv = model.denormalizer_spec.normalization_rule_tsv = ""
    return model.SerializeToString()


def record_sums():
    """Records a text whose sum of scores has more bits than a float, so that near ties are decided by rounding."""
    model = sentencepiece_model_pb2.ModelProto()
    for piece, score, kind in [("<unk>", 0, 2), ("▁", -1, 1), ("a", -1, 1), ("b", -1, 1), ("ab", -2.001, 1)]:
        model.pieces.add(piece=piece, score=score, type=kind)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    line = "ab" * 120000
    ids = processor.encode(line)
    write("sums", {"model": base64.b64encode(model.SerializeToString()).decode(), "decoded": [],
                   "lines": [[line, ids, processor.decode(ids)]], "ids": [0, -1, -1, -1]})


def write(name, case):
    data = json.dumps(case, ensure_ascii=False, separators=(",", ":")).encode()
    path = FOLDER / f"sentencepiece_{name}.json.gz"
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    print(name, len(case["lines"]), "lines", path.stat().st_size, "bytes")


def text(source):
    line = text_of(source, 6)
    while source.random() < 0.3:
        at = source.randint(0, len(line))
        line = line[:at] + source.choice(WORDS) + line[at:]
    return line


def main():
    for number, name in enumerate(TRAIN):
        model = train(name)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        source = random.Random(300 + number)
        lines = []
        for line in ["", " ", "  a  b ", "▁a ▁", "\n\t", "a\0b"] + [text(source) for _ in range(LINES)]:
            ids = processor.encode(line)
            lines.append([line, ids, processor.decode(ids)])
        decoded = []
        for _ in range(200):
            size = processor.get_piece_size()
            ids = [source.choice([source.randrange(size), source.randrange(min(260, size))])
                   for _ in range(source.randint(0, 8))]
            decoded.append([ids, processor.decode(ids)])
        write(name, {"model": base64.b64encode(model).decode(), "lines": lines, "decoded": decoded,
                     "ids": [processor.unk_id(), processor.bos_id(), processor.eos_id(), processor.pad_id()]})
    record_sums()


if __name__ == "__main__":
    main()
