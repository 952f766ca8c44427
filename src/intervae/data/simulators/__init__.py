"""Simulators: structural causal models that render images, one file each."""

from intervae.data.simulators.base import Simulator
from intervae.data.simulators.bowl import Bowl
from intervae.data.simulators.cross_modal import CrossModal
from intervae.data.simulators.flow import Flow
from intervae.data.simulators.garden import Garden
from intervae.data.simulators.morpho_mnist import MorphoMnist
from intervae.data.simulators.motion import Motion
from intervae.data.simulators.moved_digits import MovedDigits
from intervae.data.simulators.parabola import Parabola
from intervae.data.simulators.pendulum import Pendulum
from intervae.data.simulators.shapes3d import Shapes3d
from intervae.data.simulators.spring import Spring
from intervae.data.simulators.xray import XRay

__all__ = [
    "Bowl",
    "CrossModal",
    "Flow",
    "Garden",
    "MorphoMnist",
    "Motion",
    "MovedDigits",
    "Parabola",
    "Pendulum",
    "Shapes3d",
    "Simulator",
    "Spring",
    "XRay",
]
