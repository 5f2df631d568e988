# SPDX-License-Identifier: Apache-2.0
"""Splits of a folder of images that choose settings without looking at the images that report."""
import os
import random
import shutil

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm")
SPLIT_SEED, TAKEN = 1, 5  # every fifth image of a class, of an order drawn by this seed


def list_images(folder):
    """{class: its files in order}, hidden ones left out, as `hone train vision` lists them."""
    classes = {}
    for top in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = [path for path in sorted(top.rglob("*")) if path.suffix.lower() in SUFFIXES and
                 not any(part.startswith(".") for part in path.relative_to(folder).parts)]
        if files:
            classes[top.name] = files
    return classes


def split_off(classes):
    """(what stays, a fifth of each class, at least one image)"""
    draw, stays, taken = random.Random(SPLIT_SEED), {}, {}
    for name, files in classes.items():
        if len(files) < 2:
            raise ValueError(f"class {name} has too few images to be split")
        chosen = set(draw.sample(files, max(1, len(files) // TAKEN)))
        taken[name] = [file for file in files if file in chosen]
        stays[name] = [file for file in files if file not in chosen]
    return stays, taken


def split(folder):
    """{"grid": (train, held out), "final": (train, held out)}. The held-out images of "final" are
    the set's own (test/, otherwise val/; where there is neither, a fifth of each class). Those of
    "grid" are val/ where test/ is there too, otherwise a fifth of the training images, with which
    "final" trains as well."""
    has_parts = (folder / "train").is_dir()
    train = list_images(folder / "train" if has_parts else folder)
    own = [list_images(folder / name) for name in ("test", "val")
           if has_parts and (folder / name).is_dir()]
    if not own:
        train, *own = split_off(train)
    return {"grid": (train, own[1]) if len(own) > 1 else split_off(train),
            "final": (train, own[0])}


def link_splits(folder, out):
    """Makes out/grid and out/final, folders of links that `hone train` reads; {split: (number of
    training images, of held-out images)}."""
    splits = split(folder)
    if not all(part for parts in splits.values() for part in parts):
        raise ValueError(f"{folder} has no folders of images for each class")
    if not out.exists():
        partial = out.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        for name, parts in splits.items():
            for part, classes in zip(("train", "test"), parts):
                for label, files in classes.items():
                    place = partial / name / part / label
                    place.mkdir(parents=True)
                    for number, file in enumerate(files):
                        (place / f"{number:05d}{file.suffix}").symlink_to(file.resolve())
        os.replace(partial, out)
    return {name: tuple(sum(map(len, part.values())) for part in parts)
            for name, parts in splits.items()}
