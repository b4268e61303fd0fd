"""The cases of loader.py that read files: JPEG images with torchvision, and tables with datasets.

The images are decoded and transformed by torchvision.transforms.v2, with decode_jpeg or (way "pil")
with Pillow. As in loader.py, with workers, the loop converts the bytes of the workers to floats and
normalizes them. Rows are read in batches, as columns of Arrow (way "arrow") or as lists.
"""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Jpegs(Dataset):
    batch = {"jpeg_folder": 32}

    def __init__(self, path, workers, way):
        import torchvision
        from torchvision.datasets import ImageFolder
        from torchvision.transforms import v2

        self.files = ImageFolder(path).samples
        self.version = f"{torch.__version__}, torchvision {torchvision.__version__}"
        self.samples, self.late = len(self.files), workers > 0
        self.io, self.functional, self.uses_pillow = torchvision.io, v2.functional, way == "pil"
        self.augment = v2.Compose([v2.RandomResizedCrop(224, antialias=True),
                                   v2.RandomHorizontalFlip()])
        self.convert = v2.Compose([v2.ToDtype(torch.float32, scale=True),
                                   v2.Normalize([0.49, 0.48, 0.44], [0.24, 0.25, 0.26])])

    def decoded(self, name):
        if self.uses_pillow:
            import PIL.Image
            return PIL.Image.open(name).convert("RGB")
        return self.io.decode_jpeg(self.io.read_file(name), mode=self.io.ImageReadMode.RGB)

    def to_check(self):
        """Returns the pixels of images before random transforms."""
        return [self.functional.pil_to_tensor(image) if self.uses_pillow else image
                for image in (self.decoded(name) for name, _ in self.files[:8])]

    def image(self, name):
        image = self.augment(self.decoded(name))
        return self.functional.pil_to_tensor(image) if self.uses_pillow else image

    def __getitem__(self, rows):
        images = torch.stack([self.image(self.files[row][0]) for row in rows])
        labels = np.array([self.files[row][1] for row in rows])
        return (images.numpy(), labels) if self.late else (images, labels)

    def finish(self, batch):
        images, labels = map(torch.as_tensor, batch)
        return self.convert(images), labels


def opened(path, case, files, **options):
    import datasets

    datasets.disable_progress_bars()
    kind, ending = ("csv", "csv") if case.startswith("csv") else ("json", "jsonl")
    return datasets.load_dataset(kind, data_files=[f"{path}/{name}.{ending}" for name in files],
                                 split="train", **options)


class Rows(Dataset):
    """Reads batches of rows at given indices."""

    batch = {"csv": 64, "json_lines": 64}
    files = ("rows",)
    options = {}

    def __init__(self, path, case, way):
        cache = {} if self.options else {"cache_dir": f"{path}/cache"}
        import datasets

        self.version = f"{torch.__version__}, datasets {datasets.__version__}"
        self.rows = opened(path, case, self.files, **self.options, **cache)
        self.is_arrow = way == "arrow"
        if self.is_arrow:
            self.rows = self.rows.with_format("arrow")

    @property
    def samples(self):
        return len(self.rows)

    def columns(self, batch):
        if self.is_arrow:
            return batch["text"].to_pylist(), batch["label"].to_numpy()
        return batch["text"], np.array(batch["label"])

    def __getitem__(self, rows):
        return self.columns(self.rows[rows.tolist()])

    @staticmethod
    def finish(batch):
        texts, labels = batch
        return texts, torch.tensor(labels)


class Part(IterableDataset):
    """The batches of the files that a worker reads."""

    def __init__(self, stream):
        self.stream = stream

    def __iter__(self):
        worker, rows = get_worker_info(), self.stream.rows
        if worker is not None:
            rows = rows.shard(worker.num_workers, worker.id)
        return map(self.stream.columns, rows.iter(batch_size=64))


class Stream(Rows):
    """Reads batches in the order of two files. Each worker reads a file."""

    batch = {"csv_stream": 64, "json_lines_stream": 64}
    files = ("0", "1")
    options = {"streaming": True}

    def loader(self, workers, ahead):
        return DataLoader(Part(self), batch_size=None, collate_fn=lambda batch: batch,
                          num_workers=workers, **ahead)


CASES = {name: made for made in (Jpegs, Rows, Stream) for name in made.batch}
