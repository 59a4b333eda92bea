"""verl: supervised training on the recorded tokens themselves, not on chats that
are tokenized again.

    data.custom_cls.path=verl_sft.py data.custom_cls.name=RecordedDataset
    data.train_files=<the files of a folder of profile "pretok">
    data.pad_mode=no_padding (or right) data.max_length=...

A row that is longer than max_length is cut at its end (truncation: right), or
is an error (truncation: error, verl's default).
"""
import datasets
import torch


class RecordedDataset(torch.utils.data.Dataset):
    def __init__(self, parquet_files, tokenizer, config, processor=None, max_samples=-1):
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        self.rows = datasets.load_dataset("parquet", data_files=files, split="train")
        if 0 < max_samples < len(self.rows):
            self.rows = self.rows.select(range(max_samples))
        self.limit, self.cut = config.get("max_length", 1024), config.get("truncation", "error") == "right"
        self.padded, self.pad = config.get("pad_mode", "right") == "right", getattr(tokenizer, "pad_token_id", None) or 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, item):
        row = self.rows[item]
        if len(row["input_ids"]) > self.limit and not self.cut:
            raise ValueError("row %d has %d tokens, max_length is %d" % (item, len(row["input_ids"]), self.limit))
        ids, mask = row["input_ids"][:self.limit], row["loss_mask"][:self.limit]
        n, more = len(ids), self.limit - len(ids) if self.padded else 0
        got = {"input_ids": ids + [self.pad] * more, "loss_mask": mask + [0] * more,
               "position_ids": list(range(n)) + [0] * more}
        if self.padded:
            got["attention_mask"] = [1] * n + [0] * more
        return {name: torch.tensor(list_, dtype=torch.long) for name, list_ in got.items()}
