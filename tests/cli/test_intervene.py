"""`intervae intervene`: values, figures, image files and clips."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import intervae as package
from command import (
    SMALL,
    Output,
    contents,
    image_size,
    intervae,
    make_folder,
    refused,
    succeeded,
)
from intervae.data.simulators import Motion, Pendulum


def test_intervene_on_a_clip_predicts_further_frames(tmp_path: Path) -> None:
    words = [
        "train",
        "temporal-causal-prior-vae",
        "--data",
        "motion",
        "--data-option",
        "samples=64",
        "--size",
        "12",
        "--out",
        tmp_path / "run",
    ]
    for setting in ("widths=16", "background=given", "refit_epochs=1", "batch_size=16", "epochs=1"):
        words += ["--set", setting]
    succeeded(intervae(*words, "--no-evaluate", "--device", "cpu"))
    ask = ["intervene", tmp_path / "run", "--index", 2, "--out", tmp_path / "clip.png"]
    shown = succeeded(intervae(*ask, "--do", "z2_0=1.5", "--steps", 2, "--json"))
    model, data = package.load(tmp_path / "run"), Motion(size=12).dataset(samples=64)
    behind = data.test.fields["background"][2:3]
    before = model.encode(data.test.images[2:3], background=behind)
    after = model.intervene(before, {"z2_0": 1.5})
    rows = {row["variable"]: row for row in json.loads(shown.out)}
    coming = [f"z{t}_{i}" for t in (4, 5) for i in range(4)]
    assert list(rows) == [*model.latent_names[:12], *coming, *model.latent_names[12:]]
    assert [rows[name]["before"] for name in model.latent_names] == pytest.approx(
        before[0, :, 0].tolist(), abs=1e-5
    )
    assert [rows[name]["after"] for name in model.latent_names] == pytest.approx(
        after[0, :, 0].tolist(), abs=1e-5
    )
    assert {name for name, row in rows.items() if row["changed"]} == {
        name for name, row in rows.items() if row["before"] != row["after"]
    }
    assert rows["z2_0"]["changed"]
    assert not rows["z1_0"]["changed"]
    widths = []
    for more in (["--steps", 2], []):
        succeeded(intervae(*ask, "--do", "z2_0=1.5", *more))
        with Image.open(tmp_path / "clip.png") as picture:
            widths.append(picture.width)
    assert widths[0] > widths[1]  # the two that follow take room
    lines = succeeded(intervae(*ask, "--do", "z5_0=1.5", "--steps", 2)).out.splitlines()
    assert lines[0].split() == ["variable", "before", "after", "change"]
    assert [line.split()[::2][:2] for line in lines if len(line.split()) == 4][1:] == [
        ["z5_0", "1.5"]
    ]  # it alone changed: nothing follows
    predicted = model.latents_over_time(data.test.images[2:3], background=behind, steps=2)
    only = json.loads(succeeded(intervae(*ask, "--steps", 2, "--json")).out)
    assert {row["variable"]: row["before"] for row in only} == pytest.approx(
        {name: float(value) for name, value in predicted.items()}, abs=1e-5
    )
    assert not any(row["changed"] for row in only)
    refused(
        intervae(*ask, "--do", "z5_0=1.5", "--steps", 1),
        1,
        "frame 5 is beyond the 4 frames requested; raise steps to 2",
    )
    refused(intervae(*ask), 2, "Missing option '--do', or --steps of a clip")
    svg = tmp_path / "clip.svg"
    for words, labels in (([], []), (["--do", "z5_0=1.5"], ["do(z5_0 = 1.5)"])):
        succeeded(intervae(*ask[:-1], svg, "--steps", 2, *words))
        for label in ("original", "without do()", *labels):
            assert label in svg.read_text()
    assert (
        len(list(ET.parse(svg).iter("{http://www.w3.org/2000/svg}image"))) == 3 + 5 + 5
    )  # the clip, and five frames without do() and with it
    refused(
        intervae(*ask, "--do", "z2_0=1", "--image", tmp_path / "clip.png"), 2, "trained on clips"
    )


def answered(output: Output) -> Output:
    """Assert exit code 0 and nothing but notes on standard error; return the output."""
    assert output.code == 0, output
    assert all(line.startswith("note: ") for line in output.err.splitlines()), output.err
    return output


def test_intervene_prints_what_the_picture_shows_and_the_truth(
    finished: Path, tmp_path: Path
) -> None:
    do = {"light": 130.0, "pendulum": -5.0}
    words = ["--do", "light=130", "--do", "pendulum=-5", "--index", 3]
    ask = ["intervene", finished, *words, "--out", tmp_path / "strip.png"]
    rows = {row["variable"]: row for row in json.loads(answered(intervae(*ask, "--json")).out)}
    model: Any = package.load(finished)
    data = Pendulum().dataset(size=16, samples=96)
    sample = data.test[3:4]
    painted = model.counterfactual(sample.images, do)
    target = model.intervene(model.encode(sample.images), do)
    noises = sample.fields["exogenous"].numpy()
    expected = {
        "before": model.measure(sample.images)[0],
        "after": model.measure(painted)[0],  # read again, not what was set
        "set": [model.to_units(i, target[:, i]) for i in range(4)],
        "true_before": data.simulator.simulate(noises)[0],  # type: ignore[union-attr]
        "true_after": data.simulator.simulate(noises, do)[0],  # type: ignore[union-attr]
    }
    assert list(rows) == list(data.names)
    for key, values in expected.items():
        shown = [row[key] for row in rows.values()]
        np.testing.assert_allclose(shown, np.asarray(values, float).ravel(), rtol=1e-4, atol=1e-4)
    assert rows["light"]["set"] == pytest.approx(130)
    assert rows["light"]["true_after"] == pytest.approx(130)
    assert abs(rows["light"]["after"] - 130) > 20  # one epoch: the picture does not show it
    assert image_size(tmp_path / "strip.png")[0] > 100
    output = answered(intervae(*ask))
    head = output.out.split("pendulum")[0].split()
    assert head == ["variable", "before", "set", "after", "true", "before", "true", "after"]
    assert re.search(
        rf"note: do\(\) sets light to 130, but the picture shows {rows['light']['after']:.4g}, "
        "as the model reads it",
        output.err,
    )


def test_intervene_writes_strip_png_except_with_json(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ask = ["intervene", finished, "--do", "light=100"]
    assert len(json.loads(answered(intervae(*ask, "--json")).out)) == 4
    assert not contents(tmp_path)
    assert "wrote strip.png\n" in answered(intervae(*ask)).out
    assert set(contents(tmp_path)) == {"strip.png"}


def test_image_file_and_test_image_give_the_same_result(finished: Path, tmp_path: Path) -> None:
    image = Pendulum().dataset(size=16, samples=96).test.images[5]
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "5.png")
    by_index = answered(
        intervae(
            "intervene",
            finished,
            "--do",
            "light=90",
            "--index",
            5,
            "--out",
            tmp_path / "a.png",
            "--json",
        )
    )
    by_file = answered(
        intervae(
            "intervene",
            finished,
            "--do",
            "light=90",
            "--image",
            tmp_path / "5.png",
            "--out",
            tmp_path / "b.png",
            "--json",
        )
    )
    rows = [json.loads(output.out) for output in (by_file, by_index)]
    truth = [{key: row.pop(key) for key in ("true_before", "true_after")} for row in rows[1]]
    assert len(truth) == 4  # which only a test image has
    assert rows[0] == rows[1]
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_image_is_resized_and_coloured_with_notes(finished: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((40, 30), 90, np.uint8)).save(tmp_path / "grey.png")
    output = intervae(
        "intervene",
        finished,
        "--do",
        "light=90",
        "--image",
        tmp_path / "grey.png",
        "--out",
        tmp_path / "strip.svg",
    )
    assert output.code == 0
    stretched, coloured = output.err.splitlines()
    assert "is 30 x 40 (width x height) and is stretched to 16 x 16" in stretched
    assert "is grey, but the run's images are in colour" in coloured
    assert ET.parse(tmp_path / "strip.svg").getroot().tag.endswith("svg")


def test_value_outside_the_training_range_gets_a_note(finished: Path, tmp_path: Path) -> None:
    output = intervae(
        "intervene", finished, "--do", "light=1000", "--out", tmp_path / "strip.png", "--json"
    )
    assert output.code == 0
    assert output.err.startswith(
        "note: light=1000 is outside the training range 54.21 to 131.9; the image extrapolates.\n"
    )
    assert json.loads(output.out)[1]["set"] == pytest.approx(1000)
    shifted = intervae("intervene", finished, "--do", "light=+1000", "--json")
    before, target = (json.loads(shifted.out)[1][key] for key in ("before", "set"))
    assert target == pytest.approx(before + 1000)
    assert f"note: light={target:g} is outside the training range" in shifted.err


def test_binary_variable_is_set_by_category_or_code(tmp_path: Path) -> None:
    folder = make_folder(
        tmp_path / "mine", columns={"side": [("left", "right")[i % 2] for i in range(80)]}
    )
    succeeded(
        intervae(
            "train",
            "causal-vae",
            "--data",
            folder,
            *SMALL,
            "--set",
            "graph=joint",
            "--no-evaluate",
            "--out",
            tmp_path / "run",
        )
    )
    ask = [
        "intervene",
        tmp_path / "run",
        "--index",
        2,
        "--out",
        tmp_path / "strip.svg",
        "--json",
        "--do",
    ]
    by_word, by_code, other = (
        answered(intervae(*ask, f"side={value}")).out for value in ("right", "1", "left")
    )
    assert by_word == by_code != other
    assert json.loads(by_word)[2]["set"] == pytest.approx(1, abs=1e-5)
    assert "do(side = left)" in (tmp_path / "strip.svg").read_text()
    refused(intervae(*ask, "side=up"), 1, "unknown category of 'side' in do() 'up'", "left, right")
    assert intervae(*ask, "side=0.5").err.startswith(
        "note: side=0.5 is neither 0 nor 1 (left, right); the image extrapolates.\n"
    )
    model: Any = package.load(tmp_path / "run")
    images = package.load_data(folder).test.images[:3]
    assert torch.equal(
        model.counterfactual(images, {"side": "right"}), model.counterfactual(images, {"side": 1})
    )
    assert torch.equal(
        model.sample(3, {"side": "left"}, seed=0), model.sample(3, {"side": 0.0}, seed=0)
    )
    with pytest.raises(
        package.IntervaeError,
        match=r"unknown category of 'side' in do\(\) 'up'; known: left, right",
    ):
        model.sample(3, {"side": "up"})
