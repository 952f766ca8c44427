"""CT-VAE where training pairs are seen in a mirror, shifted, and with exchanged codes, and what `act` makes of views."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from intervae.data.base import Dataset
from intervae.errors import UsageError
from intervae.models.views import AS_IT_IS
from pairs import random_pairs
from squares import squares, tiny


@pytest.fixture(scope="module")
def few() -> Dataset:
    """Where nothing is to be learned: 64 pictures."""
    return random_pairs(squares(4, 4, 2, 2))


def test_pairs_are_seen_in_every_view_as_often_with_the_steps_that_a_mirror_exchanges(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(few, mirror=("a",), shift=1)
    model.initialise(0)
    model.train()
    assert few.transitions is not None
    pairs, made, views = few.transitions.train, model.encode_once(few, 0), model.training_views()
    assert len(views) == 10
    assert len(model.views()) == 2
    assert views[0] == AS_IT_IS
    assert len(made.train) == len(pairs)  # a pass stays a pass
    assert made.train.fields["codes"].shape == (len(few.train), 10, model.places)
    assert made.validation.fields["codes"].shape == (len(few.validation), model.places)
    batch = made.train.batch(torch.arange(len(pairs)))
    drawn: list[Tensor] = []
    integers = torch.randint
    monkeypatch.setattr(torch, "randint", lambda *sizes, **rest: drawn.append(integers(*sizes, **rest)) or drawn[-1])
    x, y, action = model._in_some_view(batch, torch.Generator().manual_seed(0))
    assert torch.bincount(drawn[0], minlength=10).min() > 0.3 * len(pairs) / 10
    swap = {"a+1": "a-1", "a-1": "a+1"}
    for number, view in enumerate(views):
        some = (drawn[0] == number).nonzero()[:, 0][:8]
        for found, rows in ((x, pairs.before), (y, pairs.after)):
            assert torch.equal(found[some], model.codes(view.see(few.train.images[rows[some]])))
        was = [few.actions[a] for a in pairs.action[some].tolist()]
        assert [few.actions[a] for a in action[some].tolist()] == [swap.get(name, name) if view.mirrored else name for name in was]
    plain = tiny(few).encode_once(few, 0).validation.batch(torch.arange(4))
    assert torch.equal(model._in_some_view(plain, None)[2], plain["action"])


def test_wrong_views_are_refused_in_a_sentence(few: Dataset) -> None:
    with pytest.raises(UsageError, match=r"factor in mirror.*'z'"):
        tiny(few, mirror=("z",)).fit(few, seed=0)
    with pytest.raises(UsageError, match="shift=16 would push pictures of 16 pixels out of sight"):
        tiny(few, shift=16).fit(few, seed=0)
    with pytest.raises(UsageError, match="shift"):
        tiny(few, shift=-1)


def test_codes_are_exchanged_in_training_only_and_as_often_as_asked(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(few, exchange=0.25)
    model.initialise(0)
    seen: list[Tensor] = []
    score = model.transition.score
    monkeypatch.setattr(model.transition, "score", lambda x, *rest: seen.append(x) or score(x, *rest))
    places = model.places
    x = torch.arange(64)[:, None].expand(-1, places) % model.settings.codes
    batch = {"codes": x, "after_codes": x, "action": torch.zeros(64, dtype=torch.long)}
    model.train().transition_loss(batch, torch.Generator().manual_seed(0))
    (found,) = seen
    wanted = x[-len(found) :]
    assert 0.15 < (found != wanted).float().mean() < 0.35
    assert ((found == wanted) | (found == (wanted - 1) % model.settings.codes)).all()  # those of the row before
    model.eval()
    still = model.transition_loss(batch)
    plain = tiny(few)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(still["action"], plain.eval().transition_loss(batch)["action"])
    with pytest.raises(UsageError, match="exchange=1"):
        tiny(few, exchange=1.0)


def test_what_an_action_does_is_the_same_seen_in_a_mirror(few: Dataset) -> None:
    model = tiny(few, mirror=("a",))
    model.fit(few, seed=0)
    images = few.test.images[:4]
    for action, seen in (("a+1", "a-1"), ("a-1", "a+1"), ("b+1", "b+1")):
        acted, mirrored = model.act_repeatedly(images, action, 2), model.act_repeatedly(images.flip(-1), seen, 2)
        torch.testing.assert_close(acted, mirrored.flip(-1), atol=1e-5, rtol=0)
        assert torch.equal(acted[:, 1], model.act(images, action, 2))


def test_an_action_is_the_mean_of_what_becomes_of_every_view(few: Dataset) -> None:
    model = tiny(few, mirror=("a",), shift=1, graph_samples=2)
    model.fit(few, seed=0)
    images = few.test.images[:4]
    each = []
    for view in model.views():
        each.append(view.undo(model.act(view.see(images), "a-1" if view.mirrored else "a+1", alone=True)))
    torch.testing.assert_close(model.act(images, "a+1"), torch.stack(each).mean(0))
    assert torch.equal(model.act(images, "a+1", alone=True), each[0])
    assert not torch.allclose(each[0], each[-1], atol=1e-3)
    torch.testing.assert_close(model.act(images[0], "a+1"), model.act(images, "a+1")[:1], atol=1e-5, rtol=0)
