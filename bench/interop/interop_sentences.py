"""Pairs of bench/interop/check for all-MiniLM-L6-v2: token ids, embeddings and fine-tuning."""

import gzip
import json
import shutil

import numpy as np
import safetensors.torch
import sentence_transformers
import torch
import transformers
from interop_pairs import ROOT, TRANSFORMERS, expect

PACKAGE = f"sentence-transformers {sentence_transformers.__version__}"
STEPS = 5
TOLERANCE = 1e-5


def sentences(p, folder):
    with gzip.open(ROOT / "tests/golden/tokenizers/minilm.json.gz") as file:
        texts = [text for text, _ in json.load(file)["sentences"]]
    listed, tuned = p.scratch / "sentences.json", p.folder("sentences-tuned")
    listed.write_text(json.dumps(texts))
    transformers.utils.logging.set_verbosity_error()

    def load(path):
        return sentence_transformers.SentenceTransformer(str(path), device="cpu")

    def compare(model, path):
        """Compares the token ids and the embeddings of all texts. Returns a text with the largest
        difference."""
        output = p.scratch / "sentences.safetensors"
        ids = p.ask("sentences-embed", path, listed, output)
        expect(ids, [model.preprocess([text])["input_ids"][0].tolist() for text in texts], "ids")
        ours = safetensors.torch.load_file(output)["embeddings"].numpy()
        worst = np.abs(ours - model.encode(texts, batch_size=16)).max()
        assert worst <= TOLERANCE, f"embeddings differ by {worst}"
        return (f"same ids and embeddings of {len(texts)} sentences with {min(map(len, ids))} to "
                f"{max(map(len, ids))} tokens, max abs difference {worst:.1e}")

    def train():
        """Runs the command sentences-train in PyTorch."""
        model, losses = load(folder).eval(), []
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
        for step in range(STEPS):
            batch = texts[16 * step:16 * (step + 1)]
            first, second = (model(model.preprocess(part))["sentence_embedding"]
                             for part in (batch[::2], batch[1::2]))
            scores = 20 * first @ second.T
            loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def same_losses():
        ours = p.ask("sentences-train", folder, listed, tuned, STEPS)
        pairs = list(zip(ours, train(), strict=True))
        worst = max(abs(a - b) / b for a, b in pairs)
        assert worst <= 1e-4, f"losses differ by {worst}: {pairs}"
        return f"same {STEPS} losses, max relative difference {worst:.1e}"

    def tuned_is_read():
        for path in folder.iterdir():  # the files around the encoder
            if path.is_dir():
                shutil.copytree(path, tuned / path.name)
            elif not (tuned / path.name).exists():
                shutil.copy(path, tuned)
        before, model = load(folder), load(tuned)
        moved = np.abs(model.encode(texts[:16]) - before.encode(texts[:16])).max()
        assert moved > 100 * TOLERANCE, f"training changed the embeddings by {moved} only"
        return compare(model, tuned)

    p.pair(PACKAGE, p.ours, "all-MiniLM-L6-v2", lambda: compare(load(folder), folder))
    p.pair(PACKAGE, p.ours, "training all-MiniLM-L6-v2", same_losses)
    p.pair(p.ours, f"{PACKAGE}, {TRANSFORMERS}", "trained all-MiniLM-L6-v2", tuned_is_read)
