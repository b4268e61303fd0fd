"""The data and initial weights of bench/peers/fine_tuning. They depend only on constant seeds."""

import csv
import json
import random

import numpy
import safetensors.torch
import torch
import torchvision
import transformers
from PIL import Image, ImageDraw
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import TemplateProcessing

WRONG = 0.1  # the fraction of wrong labels of texts

GOOD = "good great lovely friendly excellent pleasant wonderful tasty comfortable charming".split()
BAD = "bad awful rude terrible unpleasant horrible bland uncomfortable boring unfriendly".split()
NEUTRAL = "large small new old red green quiet loud quick bright".split()
ASPECTS = "food service room view music price staff location".split()


def review(pick):
    """Returns a review with an opinion on one of two things, a question about this thing, and the
    answer. The answer is wrong with the probability WRONG, so that the best accuracy is
    1 - WRONG."""
    first, second = pick.sample(ASPECTS, 2)
    is_good, is_negated = pick.random() < 0.5, pick.random() < 0.25
    word = pick.choice(GOOD if is_good != is_negated else BAD)
    parts = [f"the {first} was {'not ' if is_negated else ''}{word}",
             f"the {second} was {pick.choice(('', 'not '))}{pick.choice(NEUTRAL)}"]
    pick.shuffle(parts)
    answer = is_good != (pick.random() < WRONG)
    joined = pick.choice((", and ", ", but ", "; ")).join(parts)
    return joined + ".", f"was the {first} good?", "yes" if answer else "no"


def write_reviews(path, count, seed):
    pick = random.Random(seed)
    rows = [review(pick) for _ in range(count)]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("review", "question", "answer"))
        writer.writerows(rows)


def text(folder):
    """Writes train.csv, validation.csv and a folder with a small BERT and its tokenizer."""
    write_reviews(folder / "train.csv", 3200, 1)
    write_reviews(folder / "validation.csv", 800, 2)
    # A trained vocabulary would depend on the random order of the trainer's hash tables.
    words = sorted({*GOOD, *BAD, *NEUTRAL, *ASPECTS, *"the was not and but , . ; ?".split()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    word_pieces = BertWordPieceTokenizer(vocab={token: i for i, token in enumerate(tokens)})
    ids = [(name, word_pieces.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    word_pieces.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_pieces._tokenizer, model_max_length=64, cls_token="[CLS]",
        sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=word_pieces.get_vocab_size(), hidden_size=128, num_hidden_layers=4,
        num_attention_heads=4, intermediate_size=512, max_position_embeddings=64,
        id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}))
    for written in (model, tokenizer):
        written.save_pretrained(folder / "bert")


SIDE = 80
SHAPES = ("circle", "cross", "square", "triangle")


def drawing(shape, random_numbers):
    """Returns an image of a bright shape at a random place, with random colors and noise."""
    numbers = random_numbers
    dark, bright = numbers.integers(0, 100, 3), numbers.integers(120, 256, 3)
    image = Image.new("RGB", (SIDE, SIDE), tuple(int(c) for c in dark))
    draw, color = ImageDraw.Draw(image), tuple(int(c) for c in bright)
    radius = int(numbers.integers(16, 30))
    x, y = (int(v) for v in numbers.integers(radius, SIDE - radius, 2))
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        draw.ellipse(box, fill=color)
    elif shape == "square":
        draw.rectangle(box, fill=color)
    elif shape == "triangle":
        draw.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], color)
    else:
        third = radius // 3
        draw.rectangle((x - third, y - radius, x + third, y + radius), fill=color)
        draw.rectangle((x - radius, y - third, x + radius, y + third), fill=color)
    pixels = numpy.asarray(image) + numbers.normal(0, 16, (SIDE, SIDE, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))


def images(folder):
    """Writes shapes/train/CLASS/*.jpg, shapes/val/CLASS/*.jpg and the weights of a ResNet-18."""
    random_numbers = numpy.random.default_rng(1)
    for part, count in (("train", 108), ("val", 40)):
        for shape in SHAPES:
            to = folder / "shapes" / part / shape
            to.mkdir(parents=True)
            for i in range(count):
                drawing(shape, random_numbers).save(to / f"{i:03}.jpg", quality=90)
    torch.manual_seed(1)
    model = torchvision.models.resnet18(num_classes=len(SHAPES))
    safetensors.torch.save_file(model.state_dict(), folder / "resnet18.safetensors")


END = 0  # the byte that ends a document


def documents(count, tasks, seed):
    """Returns prompts with three to five digits, and completions."""
    answers = {"Repeat": lambda digits: digits, "Reverse": lambda digits: digits[::-1],
               "Sort": sorted}
    pick = random.Random(seed)
    rows = []
    for _ in range(count):
        task, digits = pick.choice(tasks), [str(pick.randrange(10)) for _ in range(pick.randint(3, 5))]
        rows.append({"prompt": f"{task} {''.join(digits)}: ",
                     "completion": "".join(answers[task](digits))})
    return rows


def gpt(folder):
    """Writes train.jsonl and validation.jsonl, and pretrains a GPT-2 whose tokens are bytes on other
    tasks."""
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=64, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=END, eos_token_id=END))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    rows = documents(250 * 32, ("Repeat", "Reverse"), 1)
    for step in range(250):
        part = rows[32 * step: 32 * (step + 1)]
        ids = padded([row["prompt"] + row["completion"] for row in part])
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder / "gpt2")
    for name, count, seed in (("train", 1920, 2), ("validation", 500, 3)):
        lines = [json.dumps(row) for row in documents(count, ("Sort",), seed)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def padded(texts):
    ids = [torch.tensor([*text.encode(), END]) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=END)
