"""Image files to uint8 pixels: many at once in threads, safely, all of one size and one number of channels.

Grey stays one channel and colour three; a palette becomes colour, transparency is laid on white, 16-bit grey is scaled to 8.
Only the first frame of an animation is read, and a photograph is turned upright as its EXIF tag says.
"""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps

from intervae.errors import DataError, UsageError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")  # Pillow knows more, some of which start other programs
MOST_CHANNELS = 16
CHUNK = 1024  # images converted at a time
Size = tuple[int, int]  # height, width
File = Path | Callable[[], bytes]  # where an image is, or a function that fetches it, such as out of a zip
Crop = Callable[[int, int], tuple[float, float, float, float]]  # width, height -> left, top, right, bottom of the part to keep
T = TypeVar("T")


def as_size(size: object) -> Size | None:
    """`64` or `(48, 64)` (height, width) to a checked pair."""
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, int | np.integer) and not isinstance(side, bool) and side > 0 for side in pair):
        raise UsageError(f"size={size!r} must be a whole number of pixels such as 64, or a pair (height, width).")
    return int(pair[0]), int(pair[1])


def read_images(
    files: Sequence[File], names: Sequence[str], *, size: Size | None, channels: int | None, crop: Crop | None = None, listed: bool = True
) -> tuple[np.ndarray, list[str]]:
    """Decode every file.

    Arguments:
        files: where they are, or functions that fetch their bytes.
        names: how errors name them.
        size: (height, width) to resize to; without it the files must agree.
        channels: 1 or 3 to make all grey or all colour; without it grey files stay grey unless some file has colour.
        listed: they are rows of a table, from which one that cannot be read could be removed.
        crop: which part to keep and resize; it is asked again at the size of a JPEG that is decoded at a fraction of its own. Needs `size`.

    Returns:
        images (N, C, H, W) uint8, and notes on what was converted.
    """

    def decode(index: int) -> tuple[np.ndarray, str]:
        return _decode(files[index], names[index], size, channels, crop, "replace it or remove its row" if listed else "give another file")

    images = np.zeros((0, 0, 0, 0), np.uint8)
    seen: Counter[str] = Counter()
    # Pillow only warns of an image somewhat over its pixel limit: here that is refused like one far over it.
    with warnings.catch_warnings(), ThreadPool(os.cpu_count() or 1) as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for i, (pixels, said) in enumerate(progress(pool.imap(decode, range(len(files)), chunksize=8), len(files), "reading images")):
            if i == 0:
                check_memory(len(files) * pixels.size, names[0], "pass a smaller size= (--size)")
                images = np.empty((len(files), *pixels.shape), np.uint8)
            if pixels.shape[1:] != images.shape[2:]:
                raise DataError(
                    f"images differ in size: {names[0]!r} is {images.shape[3]} x {images.shape[2]} but {names[i]!r} is "
                    f"{pixels.shape[2]} x {pixels.shape[1]} (width x height); pass size= (--size) to resize them all."
                )
            if len(pixels) > images.shape[1]:  # colour after grey
                images = np.repeat(images, 3, axis=1)
            images[i] = pixels
            seen.update((said, f"{len(pixels)} channels") if said else (f"{len(pixels)} channels",))
    return images, _notes(seen)


def _notes(seen: Counter[str]) -> list[str]:
    notes = [f"images: {seen[said]} {said}" for said in sorted(seen) if not said.endswith("channels")]
    if seen["1 channels"] and seen["3 channels"]:
        notes.append(
            f"images: {seen['1 channels']} are grey and {seen['3 channels']} in colour, so all are read as colour; channels=1 makes all grey"
        )
    return notes


def _decode(file: File, name: str, size: Size | None, channels: int | None, crop: Crop | None, advice: str) -> tuple[np.ndarray, str]:
    """One file to (C, H, W) uint8, and what had to be converted."""
    try:
        with Image.open(file if isinstance(file, Path) else io.BytesIO(file()), formats=FORMATS) as image:
            if size is not None:
                left, top, right, bottom = (0, 0, *image.size) if crop is None else crop(*image.size)
                enlarged = 2 * max(size) * max(image.size[0] / (right - left), image.size[1] / (bottom - top))
                image.draft(None, (round(enlarged), round(enlarged)))  # lets a large JPEG decode at a fraction of its size
            return to_pixels(image, size, channels, crop)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"image {name!r} is larger than {Image.MAX_IMAGE_PIXELS} pixels, which is refused as unsafe; make it smaller.") from None
    except MemoryError:
        raise DataError(f"image {name!r} does not fit into memory; make it smaller.") from None
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"image {name!r} does not exist; check its path.") from None
    except IsADirectoryError:
        raise DataError(f"image {name!r} is a folder; give the file of a picture.") from None
    except Exception as error:  # a decoder may raise nearly anything on a broken file
        if isinstance(file, Path) and file.stat().st_size == 0:
            raise DataError(f"image {name!r} is an empty file (0 bytes); {advice}.") from None
        reason = (
            "not an image of a known format" if isinstance(error, Image.UnidentifiedImageError) else str(error).rstrip(".") or type(error).__name__
        )
        raise DataError(f"image {name!r} cannot be read ({reason}); {advice}.") from None


def to_pixels(image: Image.Image, size: Size | None = None, channels: int | None = None, crop: Crop | None = None) -> tuple[np.ndarray, str]:
    """A Pillow image to (C, H, W) uint8 with C = 1 or 3, and what had to be converted ('' for nothing)."""
    if "exif" in image.info:
        image = ImageOps.exif_transpose(image)
    image, said = _to_grey_or_colour(image)
    if channels is not None:
        image = image.convert("L" if channels == 1 else "RGB")
    box = (0, 0, *image.size) if crop is None else crop(*image.size)
    if size is not None and (image.size != (size[1], size[0]) or box != (0, 0, *image.size)):
        image = image.resize((size[1], size[0]), Image.Resampling.LANCZOS, box=box)  # Pillow widens the filter when shrinking: no aliasing
    pixels = np.asarray(image)
    return (pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)), said


def _to_grey_or_colour(image: Image.Image) -> tuple[Image.Image, str]:
    """Any Pillow mode to L or RGB."""
    mode = image.mode
    if mode in ("L", "RGB"):
        if "transparency" not in image.info:
            return image, ""
        image = image.convert("RGBA" if mode == "RGB" else "LA")
    elif mode == "1":
        return image.convert("L"), ""
    elif mode.startswith("I") or mode == "F":
        return _scaled(image)
    elif mode not in ("LA", "La", "RGBA", "RGBa", "PA") and not (mode == "P" and "transparency" in image.info):
        return image.convert("RGB"), ""
    grey = mode in ("L", "LA", "La")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white.convert("L" if grey else "RGB"), "had an alpha channel and were laid on white"


def _scaled(image: Image.Image) -> tuple[Image.Image, str]:
    """16-bit grey and floats in [0, 1] to 8 bits, by the same factor in every file."""
    values = np.asarray(image).astype(np.float64)
    top = 1.0 if image.mode == "F" else 65535.0
    if not (values.min() >= 0 and values.max() <= top):  # also catches NaN
        raise ValueError(f"its values run from {values.min():g} to {values.max():g}; only 0 to {top:g} can be scaled to 8 bits")
    what = "are floats" if image.mode == "F" else "have 16 bits"
    return Image.fromarray(np.rint(values * (255 / top)).astype(np.uint8)), f"{what} and were scaled from 0..{top:g} to 0..255"


def resize_images(images: np.ndarray, size: Size) -> np.ndarray:
    """(N, C, H, W) uint8 to another height and width, with antialiasing."""
    if images.shape[2:] == size:
        return images
    out = np.empty((*images.shape[:2], *size), np.uint8)

    def one(index: int) -> None:
        out[index] = resize_image(images[index], size)

    with ThreadPool(os.cpu_count() or 1) as pool:
        for _ in progress(pool.imap_unordered(one, range(len(images)), chunksize=32), len(images), "resizing images"):
            pass
    return out


def resize_image(image: np.ndarray, size: Size) -> np.ndarray:
    """(C, H, W) uint8 to another height and width, each channel on its own, whatever it means."""
    if image.shape[1:] == size:
        return image
    return np.stack([np.asarray(Image.fromarray(plane).resize((size[1], size[0]), Image.Resampling.LANCZOS)) for plane in image])


# ---- arrays of pixels -----------------------------------------------------------------------------------------------------
def array_to_pixels(images: np.ndarray, where: str) -> tuple[np.ndarray, list[str]]:
    """(N, H, W), (N, H, W, C) or (N, C, H, W), uint8 or floats in [0, 1], to (N, C, H, W) uint8, and notes on what was converted."""
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise DataError(f"{where}: images must be (N, H, W), (N, H, W, C) or (N, C, H, W), not of shape {images.shape}.")
    if images.ndim == 3:
        images = images[:, None]
    elif min(images.shape[1], images.shape[3]) > MOST_CHANNELS:
        raise DataError(
            f"{where}: images of shape {images.shape} have no axis of at most {MOST_CHANNELS} channels, neither second nor last; transpose them."
        )
    elif images.shape[3] < images.shape[1]:  # the shorter of the two is the channels
        images = images.transpose(0, 3, 1, 2)
    if images.dtype == np.uint8:
        return black_and_white(np.ascontiguousarray(images))
    out = np.empty(images.shape, np.uint8)
    for start in range(0, len(images), CHUNK):
        out[start : start + CHUNK] = to_bytes(images[start : start + CHUNK], f"{where}: images")
    return out, [f"images: {images.dtype} in [0, 1], rounded to 256 levels"]


def to_bytes(values: np.ndarray, where: str) -> np.ndarray:
    """uint8 as it is, floats in [0, 1] and booleans scaled to 0..255."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind not in "fb":
        raise DataError(f"{where} are {values.dtype}; store them as uint8 from 0 to 255, or as floats in [0, 1].")
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):  # also catches NaN
        raise DataError(
            f"{where} are {values.dtype} from {low:g} to {high:g}; floats must lie in [0, 1], without normalisation, or else store uint8."
        )
    return np.rint(values * np.float32(255)).astype(np.uint8)


def black_and_white(images: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """uint8 images of nothing but 0 and 1, as some data sets store masks, are spread to 0 and 255."""
    if images.max() > 1:
        return images, []
    return images * np.uint8(255), ["images: only 0 and 1, taken for black and white"]


# ---- time and memory ------------------------------------------------------------------------------------------------------
def check_memory(needed: int, name: str, advice: str) -> None:
    """Refuse what cannot fit before the system kills the process for trying."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not tell
        return
    if needed > installed:
        raise DataError(f"{name}: the images need {needed / 2**30:.1f} GiB but this machine has {installed / 2**30:.1f} GiB of memory; {advice}.")


def progress(items: Iterable[T], total: int, what: str, *, after: float = 1.0) -> Iterator[T]:
    """Pass `items` on, with a bar on a terminal once it has taken `after` seconds; silent otherwise."""
    start = time.monotonic()
    iterator = iter(items)
    shown = 0
    for item in iterator:
        shown += 1
        yield item
        if sys.stderr.isatty() and time.monotonic() - start > after:
            break
    else:
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, completed=shown)
        for item in iterator:
            bar.advance(task)
            yield item
