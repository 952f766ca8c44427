"""Image files to uint8 pixels of one size and one number of channels, decoded in threads.

Grey stays one channel and colour three; a palette becomes colour, transparency is laid on white,
16-bit grey is scaled to 8. Only the first frame of an animation is read, and a photograph is
turned upright as its EXIF tag says.
"""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from intervae.data.image_sinks import ImageSink, MemorySink
from intervae.data.pixel_arrays import Size
from intervae.data.progress import progress
from intervae.errors import DataError, unknown
from intervae.files import open_regular
from intervae.notes import Note

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")  # others of Pillow start other programs
BLOCK = 128  # files that are decoded ahead of their use at most
File = Path | Callable[[], bytes]  # a path, or a function that returns the bytes
Box = tuple[float, float, float, float]  # left, top, right, bottom
Crop = Callable[[int, int], Box]  # (width, height) -> box to use


def read_images(
    files: Sequence[File],
    names: Sequence[str],
    *,
    size: Size | None,
    channels: int | None,
    crop: Crop | None = None,
    advice: str = "replace it or remove its row",
    sink: ImageSink | None = None,
) -> tuple[np.ndarray | Tensor, list[Note]]:
    """Decode every file.

    Arguments:
        files: paths, or functions that return the bytes of a file.
        names: how errors name the files.
        size: (height, width) to resize to; without it the files must agree.
        channels: 1 for grey, 3 for colour; without it grey files stay grey unless some file has
            colour.
        crop: box to use, needs `size`; called again for a JPEG decoded at a fraction of its size.
        advice: what an error about an unreadable file recommends.
        sink: where the images go; default memory.

    Returns:
        images (N, C, H, W) uint8 as the sink returns them, and notes on conversions.
    """

    def decode(index: int) -> tuple[np.ndarray, str]:
        return _decode(files[index], names[index], size, channels, crop, advice)

    sink = sink or MemorySink()
    conversions: Counter[str] = Counter()
    channel_counts: Counter[int] = Counter()
    # Pillow only warns of an image somewhat over its pixel limit; here that is an error.
    with warnings.catch_warnings(), ThreadPool(os.cpu_count() or 1) as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        blocks = (range(len(files))[i : i + BLOCK] for i in range(0, len(files), BLOCK))
        decoded = (image for block in blocks for image in pool.imap(decode, block, chunksize=4))
        for i, (pixels, conversion) in enumerate(progress(decoded, len(files), "reading images")):
            if i == 0:
                sink.open(len(files), pixels.shape, names[0])
                height, width = pixels.shape[1:]
            if pixels.shape[1:] != (height, width):
                raise DataError(
                    f"images differ in size: {names[0]!r} is {width} x {height} "
                    f"but {names[i]!r} is {pixels.shape[2]} x {pixels.shape[1]} (width x height); "
                    "pass size= (--size) to resize them all."
                )
            sink.append(pixels)
            conversions.update([conversion] if conversion else [])
            channel_counts.update([len(pixels)])
    return sink.finish(), _summary_of_conversions(conversions, channel_counts)


def decode_images(
    files: Sequence[Path], *, advice: str
) -> list[tuple[np.ndarray, str] | DataError]:
    """Decode every file at its own size, (C, H, W) uint8, with its conversion ("" for none).

    An error stands for a broken file.
    """

    def decode(file: Path) -> tuple[np.ndarray, str] | DataError:
        try:
            return _decode(file, str(file), None, None, None, advice)
        except DataError as error:
            return error

    with warnings.catch_warnings(), ThreadPool(os.cpu_count() or 1) as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return pool.map(decode, files, chunksize=8)


def encode_image(pixels: np.ndarray, path: Path) -> bytes:
    """Return pixels (1 or 3, H, W) uint8 as the bytes of a file, in the format of its suffix."""
    kind = Image.registered_extensions().get(path.suffix.lower())
    if path.suffix.lower() not in SUFFIXES or kind not in FORMATS:
        raise unknown("format of a picture", path.suffix or str(path), SUFFIXES)
    image = Image.fromarray(
        pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    )
    options: dict[str, dict[str, object]] = {
        "JPEG": {"quality": 95, "subsampling": 0},
        "WEBP": {"lossless": True},
    }
    content = io.BytesIO()
    image.save(content, kind, **options.get(kind, {}))
    return content.getvalue()


def _summary_of_conversions(conversions: Counter[str], channel_counts: Counter[int]) -> list[Note]:
    texts = [f"images: {conversions[text]} {text}" for text in sorted(conversions)]
    if channel_counts[1] and channel_counts[3]:
        texts.append(
            f"images: {channel_counts[1]} are grey and {channel_counts[3]} in colour, "
            "so all are read as colour; channels=1 makes all grey"
        )
    return [Note("converted-images", "", text) for text in texts]


def _decode(
    file: File, name: str, size: Size | None, channels: int | None, crop: Crop | None, advice: str
) -> tuple[np.ndarray, str]:
    """Return one file as (C, H, W) uint8, and its conversion ("" for none)."""
    try:
        with (
            open_regular(file) if isinstance(file, Path) else io.BytesIO(file()) as content,
            Image.open(content, formats=FORMATS) as image,
        ):
            if size is not None:
                _draft(image, size, crop)
            return to_pixels(image, size, channels, crop)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(
            f"image {name!r} is larger than {Image.MAX_IMAGE_PIXELS} pixels, "
            "which is refused as unsafe; make it smaller."
        ) from None
    except MemoryError:
        raise DataError(f"image {name!r} does not fit into memory; make it smaller.") from None
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"image {name!r} does not exist; check its path.") from None
    except IsADirectoryError:
        raise DataError(f"image {name!r} is a folder; give the file of a picture.") from None
    except Exception as error:  # a decoder may raise nearly anything on a broken file
        if isinstance(file, Path) and os.path.isfile(file) and not os.path.getsize(file):
            raise DataError(f"image {name!r} is an empty file (0 bytes); {advice}.") from None
        reason = (
            "not an image of a known format"
            if isinstance(error, Image.UnidentifiedImageError)
            else str(getattr(error, "strerror", None) or error).rstrip(".") or type(error).__name__
        )
        raise DataError(f"image {name!r} cannot be read ({reason}); {advice}.") from None


def _draft(image: Image.Image, size: Size, crop: Crop | None) -> None:
    """Let a large JPEG decode at a fraction of its size, at least twice `size` in the crop."""
    left, top, right, bottom = (0, 0, *image.size) if crop is None else crop(*image.size)
    scale = max(image.size[0] / (right - left), image.size[1] / (bottom - top))
    side = round(2 * max(size) * scale)
    image.draft(None, (side, side))


def to_pixels(
    image: Image.Image,
    size: Size | None = None,
    channels: int | None = None,
    crop: Crop | None = None,
) -> tuple[np.ndarray, str]:
    """Return a Pillow image as (C, H, W) uint8, C = 1 or 3, and its conversion ("" for none)."""
    if "exif" in image.info:
        image = ImageOps.exif_transpose(image)
    image, conversion = _to_grey_or_colour(image)
    if channels is not None:
        image = image.convert("L" if channels == 1 else "RGB")
    box = (0, 0, *image.size) if crop is None else crop(*image.size)
    if size is not None and (image.size != (size[1], size[0]) or box != (0, 0, *image.size)):
        # Pillow widens the filter for a smaller image, so there is no aliasing.
        image = image.resize((size[1], size[0]), Image.Resampling.LANCZOS, box=box)
    pixels = np.asarray(image)
    return (pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)), conversion


def _to_grey_or_colour(image: Image.Image) -> tuple[Image.Image, str]:
    """Return an image of any Pillow mode as L or RGB, and its conversion ("" for none)."""
    mode = image.mode
    if mode in ("L", "RGB"):
        if "transparency" not in image.info:
            return image, ""
        image = image.convert("RGBA" if mode == "RGB" else "LA")
    elif mode == "1":
        return image.convert("L"), ""
    elif mode.startswith("I") or mode == "F":
        return _scale_to_bytes(image)
    elif mode not in ("LA", "La", "RGBA", "RGBa", "PA") and not (
        mode == "P" and "transparency" in image.info
    ):
        return image.convert("RGB"), ""
    grey = mode in ("L", "LA", "La")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white.convert("L" if grey else "RGB"), "had an alpha channel and were laid on white"


def _scale_to_bytes(image: Image.Image) -> tuple[Image.Image, str]:
    """Scale 16-bit grey or floats in [0, 1] to 8 bits, by the same factor in every file."""
    values = np.asarray(image).astype(np.float64)
    top = 1.0 if image.mode == "F" else 65535.0
    if not (values.min() >= 0 and values.max() <= top):  # also catches NaN
        raise ValueError(
            f"its values run from {values.min():g} to {values.max():g}; "
            f"only 0 to {top:g} can be scaled to 8 bits"
        )
    kind = "are floats" if image.mode == "F" else "have 16 bits"
    scaled = np.rint(values * (255 / top)).astype(np.uint8)
    return Image.fromarray(scaled), f"{kind} and were scaled from 0..{top:g} to 0..255"
