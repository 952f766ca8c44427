"""Packed data: images in memory-mapped .npy shards that training reads row by row.

    intervae.pack("my_folder", "packed", size=64)    # streams; `intervae pack my_folder packed`
    data = intervae.load_data("packed")              # splits whose images stay on the disk

`index.py` is the format, `write.py` writes it, `read.py` loads it; `shards.py` maps the files,
`mapped_images.py` and `mapped_split.py` look like a tensor and a Split in memory.
"""
