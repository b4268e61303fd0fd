"""Records tokenizers and their results with the tokenizers library 0.23, for tests/data/tokenizers.

    python tests/golden/record_tokenizers.py

Trains small tokenizers of several kinds on generated text in many scripts, and writes for each of them
a file tokenizers/<name>.json.gz. "tokenizer" is the contents of a tokenizer.json, and "lines" has a row
for each text:

    [text, ids, offsets, decoded, decoded with special tokens]

"offsets" has the begin and the end of each token. If the texts after decoding are equal, the last one is
left out. "options" has rows [text, pair or null, options, encodings], in which an encoding is
[ids, type ids, attention mask, special tokens mask, tokens, offsets, word ids, overflow].
"""

import collections
import gzip
import json
import pathlib
import random
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

FOLDER = pathlib.Path(__file__).parent / "tokenizers"

WORDS = {
    "latin": "the quick brown fox jumps over lazy dogs running walked unhappiness it's don't we'll they're "
             "I'm you've she'd café naïve Ångström œuvre straße Łódź İstanbul ĳssel ǆ ﬁne ﬂow Ｆｕｌｌ ｗｉｄｅ "
             "x² ½ № ℃ Å ñandú ÉCOLE Señor Þór ſtop e\u0301te\u0301 a\u030A\u0323 o\u0308\u0304",
    "greek": "Ελληνικά λόγος ΣΊΣΥΦΟΣ φῶς ᾧ ὁ ἄνθρωπος",
    "cyrillic": "Привет мир Ёлка йод Київ съешь ещё этих булок",
    "arabic": "مرحبا بالعالم السلام عليكم كِتَاب ﷺ ﻻ ١٢٣",
    "hebrew": "שלום עולם שָׁלוֹם ׳ ״",
    "indic": "नमस्ते दुनिया हिन्दी क्षत्रिय तमिழ் বাংলা १२३",
    "thai": "สวัสดีชาวโลก ภาษาไทย น้ำ ๑๒๓",
    "cjk": "你好世界 中文分词 汉字 日本語 カタカナ ひらがな がぎぐ か\u3099 ﾊﾝｶｸ 한국어 안녕하세요 \u1112\u1161\u11ab 々 〇 ㈱ ㍿ 𠀀 豈",
    "emoji": "😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 1️⃣ ☃ 🫠",
    "symbols": "$100 €5 a+b=c 3.14 1,000,000 50% #tag @user http://a.b/c?d=e&f=g foo_bar (x) [y] {z} <w> "
               "\"q\" 'r' `s` ~ ^ | \\ / – — … “q” «r» ¿? ¡! § ¶ © ™ ← ∑ ∞ ≠",
    "numbers": "0 7 42 123 1234 2024 31415926 007 IV Ⅳ ④ ¾",
}
SPACES = [" ", " ", " ", " ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2003", "\u2028",
          "\u200b", "\u0085", "\x0b", "\u1680", "", ""]
ODD = ["\0", "\x01", "\x1f", "\x7f", "\u0080", "\u009f", "\u00ad", "\ufeff", "\ufffd", "\u2060", "\u202e", "\ue000", "\u0300",
       "\u0345", "\u20dd", "\u0903", "\u180e", "\u2581", "\u0120", "\U000e0041", "\U0010ffff", "\ufdfa", "\u1e9b\u0323",
       "\u0374", "\u212b", "\ufb01", "\u0344", "[MASK]", "[mask]", " [MASK] ", "<s>", "</s>", "<unk>", "<|endoftext|>",
       "<|eot|>", "<ax>", "<AX>", "xaxlex", "axle", " axle ", "Axle,", "<0x41>", "##ing", "\u2581the", "\u0120the"]
ALL = [word for words in WORDS.values() for word in words.split(" ")]


def text_of(random, length):
    """Returns a text of up to `length` words, most of them in one script."""
    script = random.choice(list(WORDS.values())).split(" ")
    parts = []
    for _ in range(random.randint(0, length)):
        words = script if random.random() < 0.7 else ALL
        word = random.choice(words)
        kind = random.random()
        if kind < 0.08:
            word = random.choice(ODD)
        elif kind < 0.16:
            word = word.upper() if random.random() < 0.5 else word.capitalize()
        elif kind < 0.2:
            word = word[:random.randint(0, len(word))] + random.choice(ALL)
        elif kind < 0.22:
            word = chr(random.choice([random.randint(0x20, 0x24ff), random.randint(0x3000, 0xd7a3)]))
            # The libraries have different versions of Unicode.
            word = word if unicodedata.ucd_3_2_0.category(word) != "Cn" else "?"
        parts += [word, random.choice(SPACES)]
    return "".join(parts)


def corpus():
    source = random.Random(1)
    return [text_of(source, 12) for _ in range(4000)]


def common_corpus():
    """Returns the corpus without rare characters, so that some characters have no token."""
    lines = corpus()
    counts = collections.Counter("".join(lines))
    return ["".join(c for c in line if counts[c] > 15 and c != "\0") for line in lines]


GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
          " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
QUIET = {"show_progress": False}


def bert(lowercase):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special, **QUIET))
    t.add_tokens([AddedToken("axle", single_word=True), AddedToken("<ax>", normalized=False)])
    if lowercase:
        t.post_processor = processors.TemplateProcessing(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
    else:
        t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.decoder = decoders.WordPiece(cleanup=lowercase)
    return t


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1200, special_tokens=["<|endoftext|>"], initial_alphabet=ALPHABET, **QUIET))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    return t


def roberta():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], initial_alphabet=ALPHABET, **QUIET))
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    t.decoder = decoders.ByteLevel()
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=1200, initial_alphabet=ALPHABET, **QUIET))
    t.add_special_tokens(["<s>", "<|eot|>"])
    t.add_tokens([AddedToken("axle", lstrip=True, normalized=True)])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True, add_prefix_space=False),
        processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", t.token_to_id("<s>"))])])
    t.decoder = decoders.ByteLevel()
    return t


def llama2():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    t.train_from_iterator([line[:40] for line in corpus()[:1500]], trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, limit_alphabet=200, **QUIET))
    file = json.loads(t.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    t = Tokenizer.from_str(json.dumps(file))
    t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return t


def t5():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.train_from_iterator(common_corpus(), trainers.UnigramTrainer(
        vocab_size=800, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", **QUIET))
    t.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    t.decoder = decoders.Metaspace()
    return t


def albert():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.train_from_iterator(common_corpus(), trainers.UnigramTrainer(
        vocab_size=800, special_tokens=["<pad>", "<unk>", "[CLS]", "[SEP]"], unk_token="<unk>", **QUIET))
    file = json.loads(t.to_str())
    file["model"]["byte_fallback"] = True
    file["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    t = Tokenizer.from_str(json.dumps(file))
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return t


def clip():
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([
        normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("merged_with_previous")])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", "<s>", "</s>"], end_of_word_suffix="</w>", limit_alphabet=150, **QUIET))
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trim_offsets=False,
                                                    add_prefix_space=False)
    t.decoder = decoders.BPEDecoder()
    return t


def words():
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.NFD()
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(corpus(), trainers.WordLevelTrainer(vocab_size=400, special_tokens=["<unk>"], **QUIET))
    return t


TOKENIZERS = {
    "bert_uncased": lambda: bert(True), "bert_cased": lambda: bert(False), "gpt2": gpt2, "roberta": roberta,
    "llama3": llama3, "llama2": llama2, "t5": t5, "albert": albert, "clip": clip, "words": words,
}
LINES = 1050


def offsets_of(encoding):
    return [number for pair in encoding.offsets for number in pair]


def record_line(t, text):
    e = t.encode(text)
    decoded, with_special = t.decode(e.ids), t.decode(e.ids, skip_special_tokens=False)
    return [text, e.ids, offsets_of(e), decoded] + ([with_special] if with_special != decoded else [])


def encoding_of(e):
    return [e.ids, e.type_ids, e.attention_mask, e.special_tokens_mask, e.tokens, offsets_of(e),
            [-1 if word is None else word for word in e.word_ids]]


def record_options(t, source):
    rows = []
    while len(rows) < 40:
        text, pair = text_of(source, 10), text_of(source, 10) if source.random() < 0.6 else None
        options = {"add_special_tokens": source.random() < 0.8}
        t.no_truncation(), t.no_padding()
        if source.random() < 0.7:
            options["truncation"] = {
                "max_length": source.randint(8, 24), "stride": source.randint(0, 3),
                "strategy": source.choice(["longest_first", "longest_first", "only_first", "only_second"]),
                "direction": source.choice(["right", "left"])}
            t.enable_truncation(**options["truncation"])
        if source.random() < 0.6:
            options["padding"] = {
                "length": source.choice([None, 20, 64]), "pad_to_multiple_of": source.choice([None, 8]),
                "direction": source.choice(["right", "left"]), "pad_id": 1, "pad_token": "<p>", "pad_type_id": 3}
            t.enable_padding(**options["padding"])
        try:
            e = t.encode(text, pair, add_special_tokens=options["add_special_tokens"])
        except BaseException as error:  # a panic of the library is not an Exception
            rows.append([text, pair, options, str(error)[:60]])
            continue
        rows.append([text, pair, options, encoding_of(e) + [[encoding_of(o) for o in e.overflowing]]])
    t.no_truncation(), t.no_padding()
    return rows


def main():
    FOLDER.mkdir(exist_ok=True)
    for number, (name, make) in enumerate(TOKENIZERS.items()):
        t = make()
        source = random.Random(100 + number)
        lines = [record_line(t, text_of(source, 7)) for _ in range(LINES)]
        case = {"tokenizer": json.loads(t.to_str()), "lines": lines, "options": record_options(t, source)}
        data = json.dumps(case, ensure_ascii=False, separators=(",", ":")).encode()
        (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))
        print(name, t.get_vocab_size(), "tokens", len(lines), "lines", (FOLDER / f"{name}.json.gz").stat().st_size)


if __name__ == "__main__":
    main()
