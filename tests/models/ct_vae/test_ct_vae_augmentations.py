"""CT-VAE with mirrored and shifted training pairs, and `act` averaged over augmentations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from intervae.data import Dataset
from intervae.errors import UsageError
from intervae.models.ct_vae.augmentations import IDENTITY
from squares import tiny


def test_training_pairs_are_encoded_under_every_augmentation(random_data: Dataset) -> None:
    model = tiny(random_data, mirror=("a",), shift=1)
    assert random_data.transitions is not None
    encoded, augmentations = model.encode_pairs(random_data, 0), model.training_augmentations()
    assert len(augmentations) == 10
    assert augmentations[0] == IDENTITY
    assert len(model.augmentations()) == 2
    # an epoch still visits each pair once
    assert len(encoded.train) == len(random_data.transitions.train)
    train, validation = encoded.train.fields["codes"], encoded.validation.fields["codes"]
    assert train.shape == (len(random_data.train), 10, model.positions)
    assert validation.shape == (len(random_data.validation), model.positions)


def test_augmented_pairs_swap_the_actions_of_mirrored_factors(
    random_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(random_data, mirror=("a",), shift=1).train()
    assert random_data.transitions is not None
    pairs, images = random_data.transitions.train, random_data.train.images
    batch = model.encode_pairs(random_data, 0).train.batch(torch.arange(len(pairs)))
    chosen: list[Tensor] = []
    randint = torch.randint

    def record(*sizes: int, **options: object) -> Tensor:
        chosen.append(randint(*sizes, **options))  # type: ignore[call-overload]
        return chosen[-1]

    monkeypatch.setattr(torch, "randint", record)
    x, y, action = model._augmented_pairs(batch, torch.Generator().manual_seed(0))
    assert torch.bincount(chosen[0], minlength=10).min() > 0.3 * len(pairs) / 10
    swapped = {"a+1": "a-1", "a-1": "a+1"}
    for number, augmentation in enumerate(model.training_augmentations()):
        rows = (chosen[0] == number).nonzero()[:, 0][:8]
        for codes, ends in ((x, pairs.before), (y, pairs.after)):
            augmented = augmentation.apply(images[ends[rows]])
            assert torch.equal(codes[rows], model.codes(augmented))
        names = [random_data.actions[a] for a in pairs.action[rows].tolist()]
        expected = [swapped.get(name, name) if augmentation.mirrored else name for name in names]
        assert [random_data.actions[a] for a in action[rows].tolist()] == expected
    plain = tiny(random_data).encode_pairs(random_data, 0).validation.batch(torch.arange(4))
    assert torch.equal(model._augmented_pairs(plain, None)[2], plain["action"])


def test_invalid_augmentations_raise(random_data: Dataset) -> None:
    with pytest.raises(UsageError, match=r"factor in mirror.*'z'"):
        tiny(random_data, mirror=("z",)).fit(random_data, seed=0)
    with pytest.raises(UsageError, match="shift=16 is too large for images of 16 pixels"):
        tiny(random_data, shift=16).fit(random_data, seed=0)
    with pytest.raises(UsageError, match="shift"):
        tiny(random_data, shift=-1)


def test_act_commutes_with_a_mirror(random_data: Dataset) -> None:
    model = tiny(random_data, mirror=("a",))
    model.fit(random_data, seed=0)
    images = random_data.test.images[:4]
    for action, in_mirror in (("a+1", "a-1"), ("a-1", "a+1"), ("b+1", "b+1")):
        acted = model.act_repeatedly(images, action, 2)
        mirrored = model.act_repeatedly(images.flip(-1), in_mirror, 2)
        torch.testing.assert_close(acted, mirrored.flip(-1), atol=1e-5, rtol=0)
        assert torch.equal(acted[:, 1], model.act(images, action, 2))


@pytest.mark.parametrize("samples", [0, 2])
def test_act_averages_over_augmentations(samples: int, random_data: Dataset) -> None:
    model = tiny(random_data, mirror=("a",), shift=1)
    model.fit(random_data, seed=0)
    images = random_data.test.images[:4]
    separate = []
    for augmentation in model.augmentations():
        action = "a-1" if augmentation.mirrored else "a+1"
        acted = model.act(augmentation.apply(images), action, samples=samples, augment=False)
        separate.append(augmentation.undo(acted))
    mean = model.act(images, "a+1", samples=samples)
    torch.testing.assert_close(mean, torch.stack(separate).mean(0))
    alone = model.act(images, "a+1", samples=samples, augment=False)
    assert torch.equal(alone, separate[0])
    assert not torch.allclose(separate[0], separate[-1], atol=1e-3)
    first = model.act(images[0], "a+1", samples=samples)
    torch.testing.assert_close(first, mean[:1], atol=1e-5, rtol=0)
